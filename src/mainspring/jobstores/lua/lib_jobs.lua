-- lib_jobs: what the scripts about jobs share.
local VERSION, INCARNATION, AT, NOMINAL, MISS = 1, 2, 3, 4, 5

-- The next `count` versions; answers the one before them. The first ever is the time, so that a shard that lost its
-- data gives none that somebody may still hold.
local function take_versions(count)
  local last = tonumber(redis.call('GET', versions)) or now
  if count > 0 then redis.call('SET', versions, string.format('%.0f', last + count)) end
  return last
end

local function job_state(job_id)
  return unpacked(redis.call('HGET', job_states, job_id), JOB_STATE_SIZE)
end

-- The earliest time at which a scheduler that sleeps now has been told to look again.
local function earliest()
  local first = redis.call('ZRANGE', times, 0, 0, 'WITHSCORES')
  return first[2] and tonumber(first[2])
end

-- Frames, states and counts of unfinished runs of jobs: three arrays.
local function job_rows(ids)
  local found, owners = many('HMGET', job_states, ids), {}
  for i = 1, #ids do
    local state = unpacked(found[i], JOB_STATE_SIZE)
    owners[i] = state and ids[i] .. '@' .. state[INCARNATION] or ''
  end
  return { ids, many('HMGET', jobs, ids), found, many('HMGET', unfinished, owners) }
end
