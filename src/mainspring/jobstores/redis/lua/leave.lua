-- leave: take a node off the list, and have the others look at what it may leave behind.
--   KEYS  prefix, jobs, times (see lib_base); writes nodes, node_beats, node_ends
--   ARGV  node id
call('HDEL', prefix .. 'nodes', args[1])
call('ZREM', prefix .. 'node_beats', args[1])
if call('ZREM', prefix .. 'node_ends', args[1]) == 1 then tell() end
return 1
