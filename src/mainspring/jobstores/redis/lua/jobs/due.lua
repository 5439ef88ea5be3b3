-- uses: jobs
-- due: hand out due jobs, earliest first, and hide them for a while.
--   KEYS  prefix, jobs, times (see lib/base); reads and writes hidden; reads job_states
--   ARGV  limit (0: only answer when to come back), microseconds to hide the jobs for (0: do not hide them; if limit is
--         0, too, answer when the first job of all is due, hidden or not)
-- Answers now, when the next of the other jobs can be handed out (or nil), and ids, frames and states (see lib/jobs).
local limit, hold = args[1], args[2]
local next_at, ids = nil, {}
if limit == 0 and hold == 0 then
  local first = call('ZRANGE', times, 0, 0, 'WITHSCORES')
  return { now, exact(first[1], first[2]) or false, job_rows({}) }
end

local function later(at)
  if at and (not next_at or at < next_at) then next_at = at end
end

-- Hidden jobs are due, so they are among the first.
local hidden_ones = call('HLEN', hidden)
local names = call('ZRANGEBYSCORE', times, '-inf', moment, 'LIMIT', 0, limit + hidden_ones + 1)
local until_ = hidden_ones > 0 and many('HMGET', hidden, names) or {}
for i, id in ipairs(names) do
  local shown = until_[i] and tonumber(until_[i])
  if shown and shown > now then
    later(shown)
  elseif #ids < limit then
    ids[#ids + 1] = id
  else
    later(tonumber(call('ZSCORE', times, id)))
    break
  end
end
local following = call('ZRANGEBYSCORE', times, '(' .. moment, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local at = tonumber(following[2])
if at and (not next_at or at < next_at) then next_at = exact(following[1], at) end

local found = job_rows(ids)
if hold > 0 and #ids > 0 then
  local put, shown = {}, string.format('%.0f', now + hold)
  for i, id in ipairs(ids) do
    put[2 * i - 1] = id
    put[2 * i] = shown
  end
  many('HSET', hidden, put)
end
return { now, next_at or false, found }
