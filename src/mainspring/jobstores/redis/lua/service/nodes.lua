-- nodes: read the living nodes.
--   KEYS  prefix, jobs, times (see lib/base); reads nodes, node_beats, node_ends
--   ARGV  (nothing)
-- Answers two arrays: each node's description of itself (JSON), and the time of its last heartbeat.
local ids = call('ZRANGEBYSCORE', prefix .. 'node_ends', '(' .. moment, '+inf')
return { many('HMGET', prefix .. 'nodes', ids), many('ZMSCORE', prefix .. 'node_beats', ids) }
