-- uses: write heads insert runs
-- prune: delete finished runs past their retention by age, then by count those for which none was asked for.
--   KEYS  prefix, jobs, times (see lib_base); writes all that runs have
--   ARGV  how many at most, how many finished runs are kept
-- Answers how many were deleted.
local limit, kept = args[1], args[2]
local SLACK = 60000000 -- by which the clocks may differ that tell when a run ended and until when it is kept

-- When a run ended, if it says so and how long it is kept.
local function finished_at(run)
  local _, _, _, keep, _, _, at = unpack_limit(run.head, 6, run.b - 1)
  return type(keep) == 'number' and type(at) == 'number' and type(run.place) == 'string' and at
end
local ids, by_age = {}, {}

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
  for i = before + 1, #ids do by_age[ids[i]] = true end
  if counted then finished = finished - (#ids - before) end
end

local all = call('HGETALL', prefix .. 'totals')
for i = 1, #all, 2 do
  local status = tonumber(all[i]:sub(1, 1))
  if status and status > RUNNING and status < BROKEN then finished = finished + (tonumber(all[i + 1]) or 0) end
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
  local ends = run and by_age[id] and finished_at(run)
  if ends and ends + run.keep > now + SLACK then -- only its place among those to be deleted was altered
    note(sadds, together .. run.place, id)
    note(zadds, expires, ends + run.keep, run.place)
  elseif run and run.status > RUNNING and run.status < BROKEN then
    run.place = nil -- it was taken out of its set
    readable[#readable + 1] = id
  end
end
delete(readable)
return #readable
