-- uses: heads lanes read
-- claim: lease the most urgent due runs of some lanes, or say again which are held under a token.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes heads, leases, totals, w:, d:, t:; reads paused, calls,
--         states, lives, extended
--   ARGV  lanes, node, token, limit, lease in microseconds
-- Answers now, when a waiting run of the lanes can be claimed (or nil), until when all of the runs are leased (or nil, if
-- they say it themselves), and the runs as they are after the claim (see lib_read).
local names, node, token, limit, until_ = args[1], args[2], args[3], args[4], now + args[5]
local claimant = cmsgpack.pack(token) .. cmsgpack.pack(node) .. NIL
local held, open = prefix .. 't:' .. token, open_lanes(names)
local ids = call('SMEMBERS', held)
if #ids > 0 then return { now, next_run_at(open), false, run_rows(ids) } end

local members, lane_of = most_urgent(open, limit)
local found, beginnings = {}, {}
for i, member in ipairs(members) do found[i] = member:sub(44) end
local old = many('HMGET', heads, found)

-- The first fields of a running run, up to its attempt.
local function beginning(attempt)
  if not beginnings[attempt] then
    beginnings[attempt] = MAGIC .. '\1' .. UINT .. struct.pack('>I4', attempt)
  end
  return beginnings[attempt]
end

local new, put, seen, claimed = {}, {}, {}, {}
for i, id in ipairs(found) do
  local head, lane = old[i], type(lane_of) == 'string' and lane_of or lane_of[members[i]]
  seen[lane] = (seen[lane] or 0) + 1
  local b, c = nil, nil
  if head then b, c = blocks(head) end
  if b and byte(head, 4) == PENDING then -- else it is damaged, and leaves its lane
    local count = #ids + 1
    head = beginning(struct.unpack('>I4', head, 6) + 1) .. sub(head, 10, c - 1) .. claimant
    ids[count], new[count] = id, head
    put[2 * count - 1], put[2 * count] = id, head
    claimed[lane] = (claimed[lane] or 0) + 1
  end
end
-- The most urgent ones of several lanes are the first of each.
for lane, count in pairs(seen) do call('ZREMRANGEBYRANK', prefix .. 'w:' .. lane, 0, count - 1) end
for lane, count in pairs(claimed) do
  call('HINCRBY', prefix .. 'totals', RUNNING .. lane, count)
  if call('HINCRBY', prefix .. 'totals', PENDING .. lane, -count) <= 0 then
    call('HDEL', prefix .. 'totals', PENDING .. lane)
  end
end
if #ids > 0 then
  many('HSET', heads, put)
  many('SADD', held, ids)
  call('ZADD', prefix .. 'leases', until_, token)
end
return { now, next_run_at(open), until_, rows(ids, new, {}) }
