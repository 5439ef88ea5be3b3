-- clear_outbox: forget follow-ups that have arrived in their own shard.
--   KEYS  prefix, jobs, times (see lib/base); writes outbox, outbox_runs
--   ARGV  run ids
many('HDEL', prefix .. 'outbox', args[1])
many('HDEL', prefix .. 'outbox_runs', args[1])
return 1
