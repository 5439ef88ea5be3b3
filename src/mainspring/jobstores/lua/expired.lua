-- uses: read
-- expired: running runs whose lease is over.
--   KEYS  prefix, jobs, times (see lib_base); reads leases, heads, calls, states, lives
--   ARGV  limit
-- Answers runs (see lib_read).
return run_rows(redis.call('ZRANGEBYSCORE', leases, '-inf', string.format('%.0f', now), 'LIMIT', 0, args[1]))
