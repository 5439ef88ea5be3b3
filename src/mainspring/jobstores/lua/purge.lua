-- uses: write runs lanes
-- purge: cancel the pending runs of a lane.
--   KEYS  prefix, jobs, times (see lib_base); writes all that runs have
--   ARGV  lane, how many at most
-- Answers how many were cancelled.
local lane, limit = args[1], args[2]
local members = redis.call('ZRANGE', waiting .. lane, 0, limit - 1)
if #members < limit then
  for _, member in ipairs(redis.call('ZRANGE', delayed .. lane, 0, limit - #members - 1)) do
    members[#members + 1] = member
  end
end
local ids = take_out_unreadable({ lane }, members)
for _, id in ipairs(ids) do
  local head = {}
  for i = 1, PLACE do head[i] = found[id][i] end
  head[STATUS], head[FINISHED], head[UNIQUE] = 'cancelled', now, false
  replace(id, head)
end
flush()
return #ids
