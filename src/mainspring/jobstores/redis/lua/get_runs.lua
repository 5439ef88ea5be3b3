-- uses: read
-- get_runs: read runs by id.
--   KEYS  prefix, jobs, times (see lib_base); reads all that runs have
--   ARGV  ids
-- Answers runs (see lib_read).
return run_rows(args[1])
