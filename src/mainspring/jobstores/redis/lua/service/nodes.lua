-- nodes: the nodes that are alive.
--   KEYS  prefix, jobs, times (see lib/base); reads nodes, node_beats, node_ends
--   ARGV  (nothing)
-- Answers what each says of itself (JSON) and when it was last heard of: two arrays.
local ids = call('ZRANGEBYSCORE', prefix .. 'node_ends', '(' .. moment, '+inf')
return { many('HMGET', prefix .. 'nodes', ids), many('ZMSCORE', prefix .. 'node_beats', ids) }
