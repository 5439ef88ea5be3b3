-- uses: queues read
-- claim: lease the most urgent due runs of each want's lanes, up to its limit; or, if runs are held under the token
-- already, answer those again.
--   KEYS  prefix, jobs, times (see lib/base); reads and writes r:, leases, totals, unique, gates, sequence, w:, d:, t:, l:,
--         b:, B:, y:; reads limits, calls, states, lives, extended
--   ARGV  wants ({lanes, limit} of each), node, token, lease in microseconds
-- Answers now; when the next pending run of the lanes can be claimed (in the form of a place, or nil); the end of the
-- lease that all of the runs share (nil if the runs were held before: then each has its own); the runs after the claim
-- (see lib/read; a run claimed now lacks status, token and node, and a plain one also the fields after m); and the ids
-- of altered runs that were found in the lanes.
local wants, node, token, until_ = args[1], args[2], args[3], now + args[4]
local held, open, later, pending, running, room = prefix .. 't:' .. token, open_lanes(lanes_of(wants))
local ids = call('SMEMBERS', held)

-- Take the most urgent runs out of the only lane.
local function pop(lane, most)
  local members = {}
  most = math.min(most, room[queue_of(lane)] or most)
  if most <= 0 then return members, nil, false end
  if math.min(most, pending[lane]) <= 8 then -- one command, but it answers scores, too
    local popped = call('ZPOPMIN', waiting .. lane, whole(most))
    for i = 1, #popped, 2 do members[#members + 1] = popped[i] end
  else
    members = call('ZRANGE', waiting .. lane, 0, most - 1)
    call('ZREMRANGEBYRANK', waiting .. lane, 0, most - 1)
  end
  return members, nil, pending[lane] > #members and call('EXISTS', waiting .. lane) == 1
end

-- Take the most urgent runs out of several lanes: the first of each.
local function take(lanes, most)
  local members, lane_of, more = most_urgent(lanes, most, room)
  local seen = {}
  for _, lane in ipairs(lane_of) do seen[lane] = (seen[lane] or 0) + 1 end
  for lane, count in pairs(seen) do call('ZREMRANGEBYRANK', waiting .. lane, 0, count - 1) end
  return members, lane_of, more
end

if #ids > 0 then
  local _, _, more = most_urgent(open, 0, room)
  return { now, more and present or later, false, run_rows(ids), {} }
end
if #open == 0 then return { now, later, until_, rows({}, {}, {}), {} } end

local found, claimed, altered, number = {}, {}, {}, 0
local parked, gates = {}, {}

-- A gate as this claim knows it: the number of its running runs, and its state.
local function gate_of(name)
  local gate = gates[name]
  if not gate then
    local said = call('HMGET', prefix .. 'y:' .. name, 'allowed', 'tat', 'line')
    gate = { running = call('SCARD', prefix .. 'l:' .. name), allowed = tonumber(said[1]), tat = tonumber(said[2]) or 0,
      line = tonumber(said[3]) or 0 }
    gates[name] = gate
  end
  return gate
end

-- Judge a run by its gate, as core/waiting/gates.py does: nil if it may start, false if no slot is free, else the time
-- of the next look.
local function verdict(name, spec)
  local gate = gate_of(name)
  local at_once, every, burst = (spec or ''):match('^(%-?%d*)/(%d+)/(%d+)$')
  at_once, every, burst = gate.allowed or tonumber(at_once), tonumber(every) or 0, tonumber(burst) or 1
  if at_once and gate.running >= at_once then return false end
  if every > 0 then
    local early = gate.tat - (burst - 1) * every
    gate.rated = true
    if early > now then
      gate.line = math.max(gate.line + every, early, now + 1)
      return gate.line
    end
    gate.tat = math.max(gate.tat, now - math.min(100000, every)) + every
  end
  gate.running = gate.running + 1
  return nil
end

-- Let a run wait for a slot of its gate, or until a start of its rate is due.
local function put_off(id, lane, run, at)
  local key, created, _, priority = runs .. id, numbers_of(run[3])
  if at then
    local urgency = urgency_of(priority, at)
    local place, at_ = urgency .. next_in_sequence() .. '1000011', run_at_of(urgency)
    call('HSET', key, 'p', place, 'm', created .. ' ' .. whole(at) .. ' ' .. whole(priority))
    call('ZADD', delayed .. lane, whole(at), place .. id)
    if not later or at_ < later then later = at_ end
    return
  end
  call('HSET', key, 's', 'blocked', 'p', '')
  call('ZADD', prefix .. 'b:' .. run[GATE_] .. '\0' .. lane, '0', urgency_of(priority, 0):sub(1, 6) .. created .. id)
  call('SADD', prefix .. 'B:' .. run[GATE_], lane)
  parked[lane] = (parked[lane] or 0) + 1
end

-- The next attempt and the time of its claim, in the form of field a.
local function next_attempt(attempts) return whole((tonumber(attempts) or 0) + 1) .. ' ' .. moment end
local first_attempt = next_attempt(0)

local function lease_to_node(id, lane, run)
  local key, attempts = runs .. id, run[2] and next_attempt(run[2]) or first_attempt
  call('HSET', key, 's', 'running', 'a', attempts, 'k', token, 'h', node)
  local own_key = run[UNIQUE_]
  if own_key and own_key:byte() == 62 then -- a key that begins with > is free once its run has started
    if call('HGET', prefix .. 'unique', own_key) == id then call('HDEL', prefix .. 'unique', own_key) end
    call('HSET', key, 'unique', '')
    run[UNIQUE_] = ''
  end
  run[1], run[2] = lane, attempts
  number = number + 1
  ids[number], found[number] = id, run
  claimed[lane] = (claimed[lane] or 0) + 1
end

local function look(member, lane)
  local id = member:sub(PLACE_SIZE + 1)
  local key = runs .. id
  local run = member:byte(PLACE_SIZE) == 48 and call('HMGET', key, 's', 'a', 'm')
    or call('HMGET', key, 's', unpack(FIELDS, 2, RARE_))
  local status, gate = run[1], run[GATE_]
  if status == 'pending' then
    if gate and (run[REFUSED_] or '') == '' then
      local at = verdict(gate, run[SPEC_])
      if at ~= nil then return put_off(id, lane, run, at) end
      call('SADD', prefix .. 'l:' .. gate, id)
    end
    lease_to_node(id, lane, run)
  elseif status and (call('HGET', key, 'p') or '') .. id == member then
    altered[#altered + 1] = id -- it waits here by its own word; another has only left something behind
  end
end

-- Lease up to `limit` runs of some lanes; answer whether more are due. A run that is put off makes room for another. This
-- ends because each look takes runs out of their lanes.
local function serve(lanes, limit)
  local only, most, more, looked = #lanes == 1 and lanes[1], number + limit, #lanes > 0, 0
  while more and number < most and looked < 5000 do
    local members, lane_of
    if only then members, lane_of, more = pop(only, most - number) else members, lane_of, more = take(lanes, most - number) end
    for i, member in ipairs(members) do
      local lane, before = only or lane_of[i], number
      look(member, lane)
      local queue = queue_of(lane)
      if room[queue] and number > before then room[queue] = room[queue] - 1 end
    end
    looked = looked + #members
    if #members == 0 then break end
    if only and (room[queue_of(only)] or 1) <= 0 then more = false end
  end
  return more
end

local more = false
for _, want in ipairs(wants) do more = serve(wanted_of(open, wants, want), want[2]) or more end
for name, gate in pairs(gates) do
  if gate.rated then
    call('HSET', prefix .. 'y:' .. name, 'tat', whole(gate.tat), 'line', whole(gate.line))
    call('SADD', prefix .. 'gates', name)
  end
end
for lane, count in pairs(parked) do
  call('HINCRBY', totals, 'blocked:' .. lane, count)
  pending[lane] = math.max(0, pending[lane] - count)
  if not claimed[lane] then call('HSET', totals, 'pending:' .. lane, whole(pending[lane])) end
end
if #ids > 0 then
  local counts = {}
  for lane, count in pairs(claimed) do
    -- Write a zero, too, which is deleted when the runs end: that saves a command here, where a caller waits.
    counts[#counts + 1], counts[#counts + 2] = 'pending:' .. lane, whole(math.max(0, pending[lane] - count))
    counts[#counts + 1], counts[#counts + 2] = 'running:' .. lane, whole(running[lane] + count)
  end
  many('HSET', totals, counts)
  many('SADD', held, ids)
  call('ZADD', prefix .. 'leases', until_, token)
end
return { now, more and present or later, until_, rows(ids, found, {}), altered }
