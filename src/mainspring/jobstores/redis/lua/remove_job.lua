-- uses: jobs
-- remove_job: remove a job.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes job_states, hidden
--   ARGV  id, the version it must have (as a state has it; false: any)
-- Answers 1, or 0 if it is not there.
local state = job_state(args[1])
if not state or args[2] and args[2] ~= version_of(state) then return 0 end
call('HDEL', job_states, args[1])
call('HDEL', jobs, args[1])
call('ZREM', times, args[1])
call('HDEL', hidden, args[1])
return 1
