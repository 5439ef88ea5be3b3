-- add_acts: keep acts of people; delete acts that are too old, and the oldest ones if there are too many.
--   KEYS  prefix, jobs, times (see lib/base); writes acts, act_ids, acts_about
--   ARGV  {id, about, frame} of each act, how many acts to keep, the id before which all acts are too old
for _, act in ipairs(args[1]) do
  call('HSET', prefix .. 'acts', act[1], act[2] .. '\0' .. act[3])
  call('ZADD', prefix .. 'act_ids', 0, act[1])
  call('ZADD', prefix .. 'acts_about', 0, act[2] .. '\0' .. act[1])
end
local old = call('ZRANGEBYLEX', prefix .. 'act_ids', '-', '(' .. args[3], 'LIMIT', 0, 1000)
local excess = math.min(call('ZCARD', prefix .. 'act_ids') - #old - args[2], 1000)
if excess > 0 then
  for _, id in ipairs(call('ZRANGE', prefix .. 'act_ids', #old, #old + excess - 1)) do old[#old + 1] = id end
end
for _, id in ipairs(old) do
  local said = call('HGET', prefix .. 'acts', id)
  if said then call('ZREM', prefix .. 'acts_about', (said:match('^[^%z]*')) .. '\0' .. id) end
  call('HDEL', prefix .. 'acts', id)
  call('ZREM', prefix .. 'act_ids', id)
end
return 1
