-- uses: queues read
-- peek: what a claim of some queues would find, so that one of several shards can be told how many it shall give.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes w:, d:; reads limits, t: and all that runs have
--   ARGV  queues, token, limit
-- Answers now, when a waiting run of the queues can be claimed (as a place has it, or nil), the urgency of the due ones as
-- texts whose order is theirs, and the runs that are held under the token (see lib_read).
local open, later, _, _, room = open_queues(args[1])
local members, _, more = most_urgent(open, args[3], room)
local some = #members > 0 or more
for i, member in ipairs(members) do members[i] = member:sub(1, URGENCY_SIZE) end
return { now, some and present or later, members, run_rows(call('SMEMBERS', prefix .. 't:' .. args[2])) }
