-- nodes: the nodes that are alive; the others are forgotten.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes nodes, node_beats, node_ends
--   ARGV  (nothing)
-- Answers what each says of itself (JSON) and when it was last heard of: two arrays.
local silent = call('ZRANGEBYSCORE', prefix .. 'node_ends', '-inf', moment)
many('HDEL', prefix .. 'nodes', silent)
many('ZREM', prefix .. 'node_beats', silent)
many('ZREM', prefix .. 'node_ends', silent)
local ids = call('ZRANGE', prefix .. 'node_ends', 0, -1)
return { many('HMGET', prefix .. 'nodes', ids), many('ZMSCORE', prefix .. 'node_beats', ids) }
