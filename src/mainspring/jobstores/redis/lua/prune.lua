-- uses: write heads insert runs
-- prune: delete finished runs past their retention by age, then by count those for which none was asked for.
--   KEYS  prefix, jobs, times (see lib_base); writes all that runs have
--   ARGV  how many at most, how many finished runs are kept
-- Answers how many were deleted.
local limit, kept = args[1], args[2]
local ids = {}

-- Take up to so many runs out of a set of those that ended together; forget it when it is empty.
local function take(set, count)
  local some = call('SPOP', together .. set, count)
  for _, id in ipairs(some) do ids[#ids + 1] = id end
  if #some < count or call('EXISTS', together .. set) == 0 then
    call('ZREM', ended, set)
    call('ZREM', expires, set)
  end
end

local finished = -(tonumber(call('HGET', prefix .. 'asked', 'runs')) or 0)
for _, set in ipairs(call('ZRANGEBYSCORE', expires, '-inf', moment, 'LIMIT', 0, limit)) do
  if #ids >= limit then break end
  local before, counted = #ids, call('ZSCORE', ended, set)
  take(set, limit - #ids)
  if counted then finished = finished - (#ids - before) end
end

local all = call('HGETALL', prefix .. 'totals')
for i = 1, #all, 2 do
  local status = tonumber(all[i]:sub(1, 1))
  if status > RUNNING and status < BROKEN then finished = finished + tonumber(all[i + 1]) end
end
local excess = math.min(finished - kept, limit - #ids)
while excess > 0 do
  local oldest, before = call('ZRANGE', ended, 0, 0)[1], #ids
  if not oldest then break end
  take(oldest, excess)
  excess = excess - (#ids - before)
end

read(ids)
local readable = {}
for _, id in ipairs(ids) do
  local run = known(id)
  if run then
    run.place = nil -- it was taken out of its set
    readable[#readable + 1] = id
  end
end
delete(readable)
return #readable
