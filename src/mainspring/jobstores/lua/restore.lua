-- uses: jobs
-- restore: put the job of this id that was set aside last back as it was, with a new version.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes job_states, versions, broken, broken_states, broken_frames
--   ARGV  id
-- Answers 1; 0 if it is not there, -1 if another job has taken its id.
local id, last = args[1], nil
local all = redis.call('HGETALL', broken)
for i = 1, #all, 2 do
  local version = tonumber(all[i])
  if cmsgpack.unpack(all[i + 1])[1] == id and (not last or version > last) then last = version end
end
if not last then return 0 end
if redis.call('HEXISTS', job_states, id) == 1 then return -1 end
local field, first = string.format('%.0f', last), earliest()
local state = cmsgpack.unpack(redis.call('HGET', broken_states, field))
state[VERSION] = take_versions(1) + 1
redis.call('HSET', job_states, id, cmsgpack.pack(state))
redis.call('HSET', jobs, id, redis.call('HGET', broken_frames, field))
if state[AT] then redis.call('ZADD', times, state[AT], id) end
for _, key in ipairs({ broken, broken_states, broken_frames }) do redis.call('HDEL', key, field) end
if state[AT] and (not first or state[AT] < first) then tell() end
return 1
