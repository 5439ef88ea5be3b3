-- server_time: the store's now.
--   KEYS  prefix, jobs, times (see lib_base); reads shift
--   ARGV  (nothing)
return now
