-- uses: read
-- get_runs: read runs by id.
--   KEYS  prefix, jobs, times (see lib/base); reads all that runs have
--   ARGV  ids
-- Answers runs (see lib/read).
return run_rows(args[1])
