-- add_run: add one plain pending run (see `is_plain` in wire.py) in a third of the time that add_runs takes.
--   KEYS  prefix, jobs, times (see lib/base); reads and writes all that runs have
--   ARGV  the run (see lib/runs)
local id, lane, run_at = args[1], args[4], args[8]
check(args[5], TIME)
check(args[7], URGENCY_SIZE)
if call('SISMEMBER', prefix .. 'gone', id) == 1 or call('SISMEMBER', prefix .. 'gone_before', id) == 1 then return 0 end
if call('EXISTS', runs .. id) == 1 then return 0 end
local place, stirred = args[7] .. next_in_sequence() .. (args[9] and '1000011' or '1000010'), run_at <= now
call('HSET', runs .. id, 's', 'pending', 'q', lane, 'm', args[6], 'p', place)
if args[9] then call('HSET', runs .. id, 'd', args[9].state, unpack(args[9].fields)) end
call('HSET', prefix .. 'calls', id, args[2])
call('ZADD', prefix .. 'created', '0', args[5] .. id)
call('HINCRBY', prefix .. 'totals', 'pending:' .. lane, '1')
if stirred then
  call('ZADD', prefix .. 'w:' .. lane, '0', place .. id)
else
  local first = call('ZRANGE', prefix .. 'd:' .. lane, '0', '0', 'WITHSCORES')[2]
  stirred = not first or run_at < tonumber(first)
  call('ZADD', prefix .. 'd:' .. lane, run_at, place .. id)
end
if stirred and (tonumber(call('HGET', prefix .. 'limits', queue_of(lane))) or 1) > 0 then tell_of_runs() end
return 1
