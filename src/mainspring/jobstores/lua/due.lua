-- uses: jobs
-- due: hand out due jobs, earliest first, and hide them for a while.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes hidden; reads job_states, unfinished
--   ARGV  limit (0: only say when to come back), microseconds to hide them for (0: not at all)
-- Answers now, when the next of the others can be had (or nil), and ids, frames, states and counts (see lib_jobs).
local limit, hold = args[1], args[2]
local moment = string.format('%.0f', now)

-- What was hidden long enough shows again at its own time.
local shown = redis.call('ZRANGEBYSCORE', hidden, '-inf', moment)
if #shown > 0 then
  local put, known = {}, many('HMGET', job_states, shown)
  for i, id in ipairs(shown) do
    local state = unpacked(known[i], JOB_STATE_SIZE)
    if state and state[AT] then
      put[#put + 1] = state[AT]
      put[#put + 1] = id
    end
  end
  many('ZREM', hidden, shown)
  many('ZADD', times, put)
end

local ids = {}
if limit > 0 then ids = redis.call('ZRANGEBYSCORE', times, '-inf', moment, 'LIMIT', 0, limit) end
local following = redis.call('ZRANGE', times, #ids, #ids, 'WITHSCORES')[2]
local next_at = following and tonumber(following)
local back = redis.call('ZRANGE', hidden, 0, 0, 'WITHSCORES')[2]
if back and (not next_at or tonumber(back) < next_at) then next_at = tonumber(back) end

local rows = job_rows(ids)
if hold > 0 and #ids > 0 then
  local put = {}
  for _, id in ipairs(ids) do
    put[#put + 1] = now + hold
    put[#put + 1] = id
  end
  many('ZREM', times, ids)
  many('ZADD', hidden, put)
end
return { now, next_at or false, rows }
