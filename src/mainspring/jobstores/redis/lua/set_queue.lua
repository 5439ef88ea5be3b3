-- set_queue: pause or resume a queue.
--   KEYS  prefix, jobs, times (see lib_base); writes paused
--   ARGV  queue, whether it is to be paused
if args[2] then return call('SADD', prefix .. 'paused', args[1]) end
if call('SREM', prefix .. 'paused', args[1]) == 1 then tell() end
return 1
