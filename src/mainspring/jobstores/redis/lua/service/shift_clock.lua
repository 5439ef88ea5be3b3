-- shift_clock: move the shard's clock, for tests.
--   KEYS  prefix, jobs, times (see lib/base); writes shift
--   ARGV  microseconds
call('INCRBY', prefix .. 'shift', args[1])
tell()
return 1
