-- uses: jobs
-- remove_all_jobs: remove all jobs of the shard; versions go on where they are.
--   KEYS  prefix, jobs, times (see lib_base); writes job_states, hidden
--   ARGV  (nothing)
return call('UNLINK', jobs, times, job_states, hidden)
