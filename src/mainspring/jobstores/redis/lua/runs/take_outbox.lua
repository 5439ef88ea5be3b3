-- take_outbox: read follow-ups for other shards that have been in the outbox for a while; they stay there.
--   KEYS  prefix, jobs, times (see lib/base); reads outbox, outbox_runs
--   ARGV  how many microseconds they must have waited, about how many to read
-- Answers the bytes of each follow-up.
local ids = {}
local page = call('HSCAN', prefix .. 'outbox', '0', 'COUNT', args[2])[2]
for i = 1, #page, 2 do
  if tonumber(page[i + 1]) + args[1] <= now then ids[#ids + 1] = page[i] end
end
return many('HMGET', prefix .. 'outbox_runs', ids)
