-- uses: write runs edges
-- set_gate: set how many runs of a gate or a queue may run at once; this number overrides the limit that runs carry.
--   KEYS  prefix, jobs, times (see lib/base); writes limits, y:, gates, numbered and all that runs have
--   ARGV  whether it is a queue; its name; the number (false: the limit that the runs carry applies again)
local name, allowed = args[2], args[3]
if args[1] then
  if allowed then call('HSET', prefix .. 'limits', name, allowed) else call('HDEL', prefix .. 'limits', name) end
  tell_of_runs()
  return 1
end

-- The greatest number of slots that a parked run's own limit gives the gate; infinite if one of them has no such limit.
local function wanted()
  local most = 0
  for _, lane in ipairs(call('SMEMBERS', prefix .. 'B:' .. name)) do
    for _, word in ipairs(call('ZRANGE', prefix .. 'b:' .. name .. '\0' .. lane, 0, -1)) do
      local at_once = tonumber((call('HGET', runs .. word:sub(25), 'n') or ''):match('^(%-?%d+)/'))
      if not at_once then return math.huge end
      most = math.max(most, at_once)
    end
  end
  return most
end

if allowed then
  call('HSET', prefix .. 'y:' .. name, 'allowed', allowed)
  call('SADD', prefix .. 'gates', name)
  call('SADD', prefix .. 'numbered', name)
else
  call('HDEL', prefix .. 'y:' .. name, 'allowed')
  call('SREM', prefix .. 'numbered', name)
end
local free = (allowed or wanted()) - call('SCARD', prefix .. 'l:' .. name)
if free > 0 then let_in(name, math.min(free, 1000)) end
finish()
return 1
