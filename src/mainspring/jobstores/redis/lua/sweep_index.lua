-- uses: heads
-- sweep_index: take out of the index of all runs what none of them has put there.
--   KEYS  prefix, jobs, times (see lib_base); reads heads; reads and writes created
--   ARGV  cursor (text; '0' at first), about how many
-- Answers the cursor of the next page ('0': this was the last), how many were taken out.
local created_, TIME_ = prefix .. 'created', TIME
local page = call('ZSCAN', created_, args[1], 'COUNT', args[2])
local members, ids, wrong = {}, {}, {}
for i = 1, #page[2], 2 do
  members[#members + 1] = page[2][i]
  ids[#ids + 1] = sub(page[2][i], TIME_ + 1)
end
for i, head in ipairs(many('HMGET', heads, ids)) do
  local run = parsed(head)
  if not head or run and run.created .. ids[i] ~= members[i] then wrong[#wrong + 1] = members[i] end
end
many('ZREM', created_, wrong)
return { page[1], #wrong }
