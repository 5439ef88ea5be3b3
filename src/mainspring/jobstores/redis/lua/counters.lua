-- counters: how many runs have ever reached each final status, and how many jobs there are.
--   KEYS  prefix, jobs, times (see lib_base); reads counters, job_states
--   ARGV  (nothing)
-- Answers the number of jobs, and the counters as names and numbers in turn.
return { call('HLEN', prefix .. 'job_states'), call('HGETALL', prefix .. 'counters') }
