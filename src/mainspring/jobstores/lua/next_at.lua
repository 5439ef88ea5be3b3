-- uses: jobs
-- next_at: the earliest next run time of the shard's jobs, handed out or not.
--   KEYS  prefix, jobs, times (see lib_base)
--   ARGV  (nothing)
return earliest() or false
