-- take_outbox: read follow-ups for other shards that have waited there for a while.
--   KEYS  prefix, jobs, times (see lib_base); reads outbox, outbox_bytes
--   ARGV  how many microseconds they must have waited, limit
-- Answers ids, heads (packed), calls, states and lives ('' if none): five arrays.
local ids, packed, bytes = {}, {}, { {}, {}, {} }
if redis.call('EXISTS', outbox) == 1 then
  local page = redis.call('HSCAN', outbox, '0', 'COUNT', args[2])[2]
  for i = 1, #page, 2 do
    local entry = cmsgpack.unpack(page[i + 1])
    if entry[1] + args[1] <= now then
      ids[#ids + 1], packed[#packed + 1] = page[i], cmsgpack.pack(entry[2])
      for n, value in ipairs(cmsgpack.unpack(redis.call('HGET', outbox_bytes, page[i]))) do
        bytes[n][#bytes[n] + 1] = value
      end
    end
  end
end
return { ids, packed, bytes[1], bytes[2], bytes[3] }
