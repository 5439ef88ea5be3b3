-- uses: write runs
-- prune: delete finished runs past their retention by age, then by count; forget lanes with nothing in them.
--   KEYS  prefix, jobs, times (see lib_base); writes all that runs have
--   ARGV  how many at most, how many finished runs are kept
-- Answers how many were deleted.
local limit, kept = args[1], args[2]
local ids = redis.call('ZRANGEBYSCORE', expires, '-inf', string.format('%.0f', now), 'LIMIT', 0, limit)
local seen = {}
for _, id in ipairs(ids) do seen[id] = true end
local excess = math.min(redis.call('ZCARD', ended) - kept, limit)
if excess > #ids then
  for _, id in ipairs(redis.call('ZRANGE', ended, 0, excess - 1)) do
    if not seen[id] and #ids < limit then ids[#ids + 1] = id end
  end
end
read(ids)
local count = 0
for _, id in ipairs(ids) do
  local head = found[id]
  if head then
    delete(id, head)
    count = count + 1
  end
end
flush()
forget_old_ids()

for _, lane in ipairs(redis.call('SMEMBERS', lanes)) do
  local keys = {}
  for _, status in ipairs({ 'pending', 'running', 'succeeded', 'failed', 'cancelled', 'missed', 'broken' }) do
    keys[#keys + 1] = by_status .. status .. ':' .. lane
  end
  if redis.call('EXISTS', unpack(keys)) == 0 then redis.call('SREM', lanes, lane) end
end
return count
