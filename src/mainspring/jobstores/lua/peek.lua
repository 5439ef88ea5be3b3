-- uses: heads lanes read
-- peek: what a claim of some lanes would find, so that one of several shards can be told how many it shall give.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes w:, d:; reads paused, t: and all that runs have
--   ARGV  lanes, token, limit
-- Answers now, when a waiting run of the lanes can be claimed (or nil), the urgency of the due ones as texts whose order
-- is theirs, and the runs that are held under the token (see lib_read).
local open, urgencies = open_lanes(args[1]), {}
for i, member in ipairs((most_urgent(open, args[3]))) do urgencies[i] = member:sub(1, 23) end
return { now, next_run_at(open), urgencies, run_rows(call('SMEMBERS', prefix .. 't:' .. args[2])) }
