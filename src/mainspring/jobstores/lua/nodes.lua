-- nodes: the nodes that are alive; the others are forgotten.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes nodes, node_beats, node_ends
--   ARGV  (nothing)
-- Answers what each says of itself (JSON) and when it was last heard of: two arrays.
local silent = redis.call('ZRANGEBYSCORE', node_ends, '-inf', string.format('%.0f', now))
many('HDEL', nodes, silent)
many('ZREM', node_beats, silent)
many('ZREM', node_ends, silent)
local ids = redis.call('ZRANGE', node_ends, 0, -1)
return { many('HMGET', nodes, ids), many('ZMSCORE', node_beats, ids) }
