-- uses: jobs
-- update_job: replace a job if it still has the version that was read.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes job_states, hidden, versions
--   ARGV  id, version, at, nominal; then the frame
-- Answers the new version; 0 if the job was changed since, -1 if it is not there.
local id, at = args[1], args[3]
local state = job_state(id)
if not state then return -1 end
if state[VERSION] ~= args[2] then return 0 end
local first = earliest()
state[VERSION] = take_versions(1) + 1
state[AT], state[NOMINAL] = at, args[4]
redis.call('HSET', job_states, id, cmsgpack.pack(state))
redis.call('HSET', jobs, id, ARGV[2])
redis.call('ZREM', hidden, id)
if at then redis.call('ZADD', times, at, id) else redis.call('ZREM', times, id) end
if at and (not first or at < first) then tell() end
return state[VERSION]
