-- uses: jobs
-- list_jobs: read a page of all jobs, in no order; a page may repeat a job of another.
--   KEYS  prefix, jobs, times (see lib/base); reads job_states
--   ARGV  cursor (text; '0' at first), about how many jobs to read
-- Answers the cursor of the next page ('0': there is none), and ids, frames and states (see lib/jobs).
local page = call('HSCAN', job_states, args[1], 'COUNT', args[2])
local ids = {}
for i = 1, #page[2], 2 do ids[#ids + 1] = page[2][i] end
return { page[1], job_rows(ids) }
