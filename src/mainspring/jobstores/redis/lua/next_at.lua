-- uses: jobs
-- next_at: the earliest next run time of the shard's jobs, handed out or not.
--   KEYS  prefix, jobs, times (see lib_base)
--   ARGV  (nothing)
local first = call('ZRANGE', times, 0, 0, 'WITHSCORES')
return exact(first[1], first[2]) or false
