-- uses: read
-- lapsed: read running runs whose lease is over.
--   KEYS  prefix, jobs, times (see lib/base); reads leases, extended, t: and all that runs have; writes leases
--   ARGV  limit, how many runs to skip first
-- Answers how many runs were skipped, and the runs after them (see lib/read).
local skip = args[2]
local limit = args[1] + skip
local leases, extended = prefix .. 'leases', prefix .. 'extended'
local ids = call('ZRANGEBYSCORE', extended, '-inf', moment, 'LIMIT', 0, limit)
for _, token in ipairs(call('ZRANGEBYSCORE', leases, '-inf', moment, 'LIMIT', 0, limit)) do
  if #ids >= limit then break end
  local members, some = call('SMEMBERS', prefix .. 't:' .. token), false
  local own = many('ZMSCORE', extended, members)
  for i, id in ipairs(members) do
    if not own[i] then
      some = true
      if #ids < limit then ids[#ids + 1] = id end
    end
  end
  -- Each of them was extended alone, so the lease that they shared no longer matters.
  if not some then call('ZREM', leases, token) end
end
local page = {}
for i = skip + 1, #ids do page[#page + 1] = ids[i] end
return { math.min(skip, #ids), run_rows(page) }
