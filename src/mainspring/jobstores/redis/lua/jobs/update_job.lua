-- uses: jobs
-- update_job: replace a job if it still has the version that the caller read.
--   KEYS  prefix, jobs, times (see lib/base); reads and writes job_states, hidden, versions
--   ARGV  id, version (in the form of a state), at, at and nominal (in the form of a state), frame
-- Answers the new version; 0 if somebody has changed the job since, -1 if it is not there.
local id, at = args[1], args[3]
check(args[4], TIMES)
local state = job_state(id)
if not state then return -1 end
if version_of(state) ~= args[2] then return 0 end
local first = earliest()
local version = take_versions(1) + 1
call('HSET', job_states, id, version_text(version) .. incarnation_of(state) .. args[4] .. rest_of(state))
call('HSET', jobs, id, args[5])
call('HDEL', hidden, id)
if at then call('ZADD', times, at, id) else call('ZREM', times, id) end
if at and (not first or at < first) then tell() end
return version
