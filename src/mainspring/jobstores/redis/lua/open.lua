-- open: write down what this shard is, or say what it is.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes meta
--   ARGV  schema, shards
-- Answers schema and shards; schema 0 if there is data under these keys that mainspring did not write.
local known = call('HMGET', prefix .. 'meta', 'schema', 'shards')
if not known[1] then
  if call('EXISTS', jobs, times) > 0 then return { 0, 0 } end
  call('HSET', prefix .. 'meta', 'schema', args[1], 'shards', args[2])
  known = { args[1], args[2] }
end
return { tonumber(known[1]), tonumber(known[2]) }
