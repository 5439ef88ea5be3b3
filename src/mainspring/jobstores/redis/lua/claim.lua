-- uses: heads queues read
-- claim: lease the most urgent due runs of some queues, or say again which are held under a token.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes heads, leases, totals, w:, d:, t:; reads paused, calls,
--         states, lives, extended
--   ARGV  queues, node, token, limit, lease in microseconds
-- Answers now, when a waiting run of the queues can be claimed (as a place has it, or nil), until when all of the runs are
-- leased (or nil, if they say it themselves), the runs as they are after the claim (see lib_read),
-- and the ids of runs that waited and were altered.
local names, node, token, limit, until_ = args[1], args[2], args[3], args[4], now + args[5]
local held, open, later, pending, running = prefix .. 't:' .. token, open_queues(names)
local ids = call('SMEMBERS', held)

-- Take the most urgent runs out of the only queue.
local function pop(queue)
  local members, most = {}, math.min(limit, pending[queue])
  if most <= 8 then -- one command, but it answers scores, too
    local popped = call('ZPOPMIN', waiting .. queue, whole(limit))
    for i = 1, #popped, 2 do members[#members + 1] = popped[i] end
  else
    members = call('ZRANGE', waiting .. queue, 0, limit - 1)
    call('ZREMRANGEBYRANK', waiting .. queue, 0, limit - 1)
  end
  return members, nil, pending[queue] > #members and call('EXISTS', waiting .. queue) == 1
end

-- Take the most urgent runs out of several queues: the first of each.
local function take()
  local members, queue_of, more = most_urgent(open, limit)
  local seen = {}
  for _, queue in ipairs(queue_of) do seen[queue] = (seen[queue] or 0) + 1 end
  for queue, count in pairs(seen) do call('ZREMRANGEBYRANK', waiting .. queue, 0, count - 1) end
  return members, queue_of, more
end

if #ids > 0 then
  local _, _, more = most_urgent(open, 0)
  return { now, more and present or later, false, run_rows(ids), {} }
end
if #open == 0 then return { now, false, until_, rows({}, {}, {}), {} } end

local only = #open == 1 and open[1]
local members, queue_of, more
if only then members, queue_of, more = pop(only) else members, queue_of, more = take() end
local found, beginnings, claimant = {}, {}, cmsgpack.pack(token) .. cmsgpack.pack(node) .. place_text(moment)
for i, member in ipairs(members) do found[i] = member:sub(45) end
local old = many('HMGET', heads, found)

-- The first fields of a running run, up to its attempt.
local function beginning(attempt)
  if not beginnings[attempt] then
    beginnings[attempt] = MAGIC .. '\1' .. UINT .. struct.pack('>I4', attempt)
  end
  return beginnings[attempt]
end

local new, put, claimed, altered = {}, {}, {}, {}
for i, id in ipairs(found) do
  local head, queue, b, c = old[i], only or queue_of[i], nil, nil
  if head then b, c = blocks(head) end
  if b and byte(head, 4) == PENDING then
    local count = #ids + 1
    head = beginning(struct.unpack('>I4', head, 6) + 1) .. sub(head, 10, c - 1) .. claimant
    ids[count], new[count] = id, head
    put[2 * count - 1], put[2 * count] = id, head
    claimed[queue] = (claimed[queue] or 0) + 1
  elseif head then -- one that waits here by its own word was altered; another has only left something behind
    local run = parsed(head)
    if not run or run.place == sub(members[i], 1, #members[i] - #id) then altered[#altered + 1] = id end
  end
end
if #ids > 0 then
  local counts = {}
  for queue, count in pairs(claimed) do
    -- None pending is written, too, and deleted when the runs end: that saves a command here, where somebody waits.
    counts[#counts + 1], counts[#counts + 2] = '0' .. queue, whole(math.max(0, pending[queue] - count))
    counts[#counts + 1], counts[#counts + 2] = '1' .. queue, whole(running[queue] + count)
  end
  many('HSET', totals, counts)
  many('HSET', heads, put)
  many('SADD', held, ids)
  call('ZADD', prefix .. 'leases', until_, token)
end
return { now, more and present or later, until_, rows(ids, new, {}), altered }
