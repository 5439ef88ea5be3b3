-- uses: write runs lanes read
-- claim: lease the most urgent due runs of some lanes, or say again which are held under a token.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes heads, leases, waiting, delayed, held, by_status; reads
--         paused, calls, states, lives
--   ARGV  lanes, node, token, limit, lease in microseconds
-- Answers now, when a waiting run of the lanes can be claimed (or nil), and the runs as they are after the claim (see
-- lib_read).
local names, node, token, limit, lease = args[1], args[2], args[3], args[4], args[5]
local open = open_lanes(names)
local ids = redis.call('SMEMBERS', held .. token)
if #ids == 0 then
  ids = take_out_unreadable(open, most_urgent(open, limit))
  for _, id in ipairs(ids) do
    local head = found[id]
    unfile(id, head)
    head[STATUS], head[NODE], head[TOKEN], head[ATTEMPT] = 'running', node, token, head[ATTEMPT] + 1
    file(id, head, now + lease)
  end
  flush()
end
return { now, next_run_at(open), run_rows(ids) }
