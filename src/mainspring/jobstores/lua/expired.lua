-- uses: heads read
-- expired: running runs whose lease is over.
--   KEYS  prefix, jobs, times (see lib_base); reads leases, extended, t: and all that runs have; writes leases
--   ARGV  limit
-- Answers runs (see lib_read).
local limit = args[1]
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
  -- All of them were extended one by one: what they shared does not matter any more.
  if not some then call('ZREM', leases, token) end
end
return run_rows(ids)
