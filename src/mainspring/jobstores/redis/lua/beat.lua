-- beat: announce a node, and forget some of those that have fallen silent.
--   KEYS  prefix, jobs, times (see lib_base); writes nodes, node_beats, node_ends
--   ARGV  node id, microseconds until it is forgotten, what it says of itself (JSON)
call('HSET', prefix .. 'nodes', args[1], args[3])
call('ZADD', prefix .. 'node_beats', now, args[1])
call('ZADD', prefix .. 'node_ends', now + args[2], args[1])
local silent = call('ZRANGEBYSCORE', prefix .. 'node_ends', '-inf', moment, 'LIMIT', 0, 100)
many('HDEL', prefix .. 'nodes', silent)
many('ZREM', prefix .. 'node_beats', silent)
many('ZREM', prefix .. 'node_ends', silent)
return 1
