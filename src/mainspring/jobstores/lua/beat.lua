-- beat: announce a node.
--   KEYS  prefix, jobs, times (see lib_base); writes nodes, node_beats, node_ends
--   ARGV  node id, microseconds until it is forgotten; then what it says of itself (JSON)
redis.call('HSET', nodes, args[1], ARGV[2])
redis.call('ZADD', node_beats, now, args[1])
redis.call('ZADD', node_ends, now + args[2], args[1])
return 1
