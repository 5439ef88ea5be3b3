-- add_run: add one pending run that has neither job, group nor unique key: add_runs in a third of the time.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes all that runs have
--   ARGV  id, head without its place, call, queue, creation time, urgency, run time
local heads, id, queue, run_at = prefix .. 'heads', args[1], args[4], args[7]
check(args[5], TIME)
check(args[6], URGENCY_SIZE)
if call('SISMEMBER', prefix .. 'gone', id) == 1 or call('SISMEMBER', prefix .. 'gone_before', id) == 1 then return 0 end
local place = args[6] .. next_in_sequence() .. '100001'
if call('HSETNX', heads, id, args[2] .. '\217\44' .. place) == 0 then return 0 end
call('HSET', prefix .. 'calls', id, args[3])
call('ZADD', prefix .. 'created', '0', args[5] .. id)
call('HINCRBY', prefix .. 'totals', '0' .. queue, '1')
local stirred = run_at <= now
if stirred then
  call('ZADD', prefix .. 'w:' .. queue, '0', place .. id)
else
  local first = call('ZRANGE', prefix .. 'd:' .. queue, '0', '0', 'WITHSCORES')[2]
  stirred = not first or run_at < tonumber(first)
  call('ZADD', prefix .. 'd:' .. queue, run_at, place .. id)
end
if stirred and call('SISMEMBER', prefix .. 'paused', queue) == 0 then tell() end
return 1
