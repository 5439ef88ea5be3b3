-- uses: jobs
-- get_job: read one job.
--   KEYS  prefix, jobs, times (see lib/base); reads job_states
--   ARGV  id
-- Answers ids, frames and states (see lib/jobs): arrays of one.
return job_rows({ args[1] })
