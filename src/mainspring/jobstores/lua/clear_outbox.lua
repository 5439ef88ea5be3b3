-- clear_outbox: forget follow-ups that have arrived in their own shard.
--   KEYS  prefix, jobs, times (see lib_base); writes outbox, outbox_bytes
--   ARGV  run ids
many('HDEL', outbox, args[1])
many('HDEL', outbox_bytes, args[1])
return 1
