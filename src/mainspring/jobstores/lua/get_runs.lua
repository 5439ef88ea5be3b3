-- uses: read
-- get_runs: read runs by id.
--   KEYS  prefix, jobs, times (see lib_base); reads leases, heads, calls, states, lives
--   ARGV  ids
-- Answers runs (see lib_read); the head of one that is not there is nil.
return run_rows(args[1])
