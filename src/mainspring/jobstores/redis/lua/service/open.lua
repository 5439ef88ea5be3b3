-- open: record the identity of this shard if it has none, and answer it.
--   KEYS  prefix, jobs, times (see lib/base); reads versions; reads and writes meta and, if the user has chosen the
--         names of the other two keys, <key>:owner (text: the prefix of the one store that uses the key)
--   ARGV  schema, shards
-- Answers schema and shards, and as texts when the shard was made and the last version given; or schema 0 if these keys
-- have data that mainspring did not write; or -1, 0, a key and its owner if the key belongs to another store.
local meta = prefix .. 'meta'
local known = call('HMGET', meta, 'schema', 'shards', 'made', 'same')
-- `same` repeats the others, and wins if they differ: then somebody has altered one of them.
if known[4] and known[4] ~= table.concat({ known[1] or '', known[2] or '', known[3] or '' }, ' ') then
  local schema, shards, made = known[4]:match('^(%d+) (%d+) (%d+)$')
  known = { schema or whole(args[1]), shards or whole(args[2]), made or moment }
  call('HSET', meta, 'schema', known[1], 'shards', known[2], 'made', known[3], 'same', table.concat(known, ' '))
end
local chosen = {}
for _, key in ipairs({ jobs, times }) do
  if key:sub(1, #prefix) ~= prefix then chosen[#chosen + 1] = key end
end
for _, key in ipairs(chosen) do
  local owner = call('GET', key .. ':owner')
  if owner and owner ~= prefix then return { -1, 0, key, owner } end
end
if not known[1] then
  if call('EXISTS', jobs, times) > 0 then return { 0, 0, '', '' } end
  for _, key in ipairs(chosen) do call('SET', key .. ':owner', prefix) end
  known = { whole(args[1]), whole(args[2]), moment }
  call('HSET', meta, 'schema', known[1], 'shards', known[2], 'made', moment, 'same', table.concat(known, ' '))
end
local version = call('GET', prefix .. 'versions') or '0'
if not version:find('^%d+$') or #version > 16 then version = '0' end
return { tonumber(known[1]), tonumber(known[2]), known[3] or '', version }
