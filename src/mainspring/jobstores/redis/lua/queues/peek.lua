-- uses: queues read
-- peek: answer what a claim would find, so that the caller can divide one claim among several shards.
--   KEYS  prefix, jobs, times (see lib/base); reads and writes w:, d:; reads limits, t: and all that runs have
--   ARGV  wants ({lanes, limit} of each), token
-- Answers now, when the next pending run of the lanes can be claimed (in the form of a place, or nil), for each want
-- the urgencies of its due runs (texts that sort like the runs), and the runs that are held under the token (see
-- lib/read).
local wants, found, some = args[1], {}, false
local open, later, _, _, room = open_lanes(lanes_of(wants))
for i, want in ipairs(wants) do
  local members, _, more = most_urgent(wanted_of(open, wants, want), want[2], room)
  some = some or #members > 0 or more
  for n, member in ipairs(members) do members[n] = member:sub(1, URGENCY_SIZE) end
  found[i] = members
end
return { now, some and present or later, found, run_rows(call('SMEMBERS', prefix .. 't:' .. args[2])) }
