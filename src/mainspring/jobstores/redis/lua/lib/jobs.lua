-- lib/jobs: functions that the scripts about jobs share.
-- A job's state is text. Its first fields have fixed widths: version 16, incarnation 16, at 18, nominal 18 (dashes if
-- there is none), number of unfinished runs 9. The open missed record, if any, follows them.
local job_states, hidden = prefix .. 'job_states', prefix .. 'hidden'

-- Reserve the next `count` versions; answers the one before them. The first version of all is the time, so a shard that
-- lost its data never gives out a version that somebody still holds.
local function take_versions(count)
  local last = tonumber(call('GET', prefix .. 'versions'))
  if not last or last < 0 or last % 1 ~= 0 or last > now + 2 ^ 50 then last = now end
  if count > 0 then call('SET', prefix .. 'versions', string.format('%.0f', last + count)) end
  return last
end

local function version_text(version) return string.format('%016.0f', version) end

-- A state that was read; false if it is missing or damaged: one damaged record must not stop the others.
local function sound(state)
  return state and #state >= 77 and state:sub(1, 32):find('^%d+$') and state:sub(69, 77):find('^%d+$') and state
end

local function job_state(job_id) return sound(call('HGET', job_states, job_id)) end

local function version_of(state) return state:sub(1, 16) end
local function incarnation_of(state) return state:sub(17, 32) end
local function at_of(state) return tonumber(state:sub(33, 50)) end
local function unfinished_of(state) return tonumber(state:sub(69, 77)) or 0 end
-- The number of unfinished runs and the missed record, which stay when a job is changed.
local function rest_of(state) return state and state:sub(69) or '000000000' end

-- The earliest time at which a sleeping scheduler will look again.
local function earliest()
  local first = call('ZRANGE', times, 0, 0, 'WITHSCORES')
  return first[2] and tonumber(first[2])
end

-- When a job is due, given its id and its score; as text if a number would round it.
local function exact(id, score)
  local at = tonumber(score)
  local state = at and math.abs(at) >= 2 ^ 53 and job_state(id)
  return state and at_of(state) and state:sub(33, 50) or at
end

-- Ids, frames and states of jobs: three arrays.
local function job_rows(ids) return { ids, many('HMGET', jobs, ids), many('HMGET', job_states, ids) } end
