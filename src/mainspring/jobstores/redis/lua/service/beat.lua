-- beat: announce a node, and delete some nodes that have fallen silent; or remove a node that leaves.
--   KEYS  prefix, jobs, times (see lib/base); writes nodes, node_beats, node_ends
--   ARGV  (nothing: only answer the time), or node id, microseconds until it is deleted (0: it leaves), its own
--         description (JSON)
-- Answers now.
local id, ttl, said = args[1], args[2], args[3]
if not id then return now end
local nodes, beats, ends = prefix .. 'nodes', prefix .. 'node_beats', prefix .. 'node_ends'
local gone = {}
if ttl > 0 then
  call('HSET', nodes, id, said)
  call('ZADD', beats, now, id)
  call('ZADD', ends, now + ttl, id)
  gone = call('ZRANGEBYSCORE', ends, '-inf', moment, 'LIMIT', 0, 100)
elseif call('ZSCORE', ends, id) then
  gone = { id }
  tell() -- the others look at what it may leave behind
end
many('HDEL', nodes, gone)
many('ZREM', beats, gone)
many('ZREM', ends, gone)
return now
