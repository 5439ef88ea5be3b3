-- beat: announce a node.
--   KEYS  prefix, jobs, times (see lib_base); writes nodes, node_beats, node_ends
--   ARGV  node id, microseconds until it is forgotten, what it says of itself (JSON)
call('HSET', prefix .. 'nodes', args[1], args[3])
call('ZADD', prefix .. 'node_beats', now, args[1])
call('ZADD', prefix .. 'node_ends', now + args[2], args[1])
return 1
