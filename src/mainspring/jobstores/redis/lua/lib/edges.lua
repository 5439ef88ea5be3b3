-- lib/edges: release, refuse or hold runs that come after others or wait for a slot of their gate. Needs lib/runs.
local BITS = { succeeded = 1, failed = 2, cancelled = 4, missed = 8, broken = 16 }
local HOLDS = 32 -- a bit of an edge: the predecessor is kept as long as the successor

-- Make a blocked run pending: it was released, or refused by another run.
local function release(id, refused)
  local read = call('HMGET', runs .. id, 'q', 'm')
  local lane, created, run_at, priority = read[1], numbers_of(read[2])
  if refused then run_at = now end
  run_at = run_at < 0 and now - run_at or math.max(run_at, now) -- a negative one is a delay that counts from here
  touch(id)
  count(BLOCKED, lane, -1)
  count(PENDING, lane, 1)
  local place = put_into_lane(id, lane, urgency_of(priority, run_at), run_at, 1)
  local numbers = created .. ' ' .. whole(run_at) .. ' ' .. whole(priority)
  call('HSET', runs .. id, 's', PENDING, 'p', place, 'm', numbers, 'w', '0', 'x', refused or '')
end

-- Let the most urgent runs that wait for a slot of a gate be judged again, up to `most` of each lane: higher priority
-- first, then older. Each goes to the end of its lane.
local function let_in(gate, most)
  for _, lane in ipairs(call('SMEMBERS', prefix .. 'B:' .. gate)) do
    local key = prefix .. 'b:' .. gate .. '\0' .. lane
    for _, word in ipairs(call('ZRANGE', key, 0, most - 1)) do
      local id = word:sub(25)
      call('ZREM', key, word)
      if call('HGET', runs .. id, 's') == BLOCKED then release(id) end
    end
    if call('EXISTS', key) == 0 then call('SREM', prefix .. 'B:' .. gate, lane) end
  end
end

-- Let others in where slots were freed.
local function let_others_in()
  if not next(freed) then return end
  write() -- what was parked or taken out in this call
  for gate, number_ in pairs(freed) do let_in(gate, number_) end
  freed = {}
end

-- Make claims read all of a waiting run, because it now has a field that few runs have.
local function flag(id)
  local read = call('HMGET', runs .. id, 's', 'q', 'p')
  call('HSET', runs .. id, 'more', '1')
  if read[1] ~= PENDING or not read[3] or read[3]:sub(-1) ~= '0' then return end
  if changed[id] then write() end
  local flagged = read[3]:sub(1, -2) .. '1'
  for _, kind in ipairs({ waiting, delayed }) do
    local score = call('ZSCORE', kind .. read[2], read[3] .. id)
    if score then
      call('ZREM', kind .. read[2], read[3] .. id)
      call('ZADD', kind .. read[2], score, flagged .. id)
    end
  end
  call('HSET', runs .. id, 'p', flagged)
end

-- Judge a run by its predecessors: how many have not ended, and which one refuses it; nil if one does not exist, unless
-- `lenient` counts it as satisfied.
local function judge(after, lenient)
  local waits, refused = 0, false
  for i = 1, #after, 2 do
    local status = call('HGET', runs .. after[i], 's')
    if UNFINISHED[status] then
      waits = waits + 1
    elseif FINAL[status] then
      if bit.band(after[i + 1], BITS[status]) == 0 then refused = refused or after[i] end
    elseif not lenient then
      return nil
    end
  end
  return refused and 0 or waits, refused
end

-- Store the edges to a run from those of its predecessors that exist.
local function link(id, after)
  for i = 1, #after, 2 do
    local before, mask = after[i], after[i + 1]
    if call('EXISTS', runs .. before) == 1 then
      if call('HSET', prefix .. 'f:' .. before, id, mask) == 1 then call('HINCRBY', runs .. before, 'f', 1) end
      call('HSET', prefix .. 'a:' .. id, before, mask)
      flag(before)
    end
  end
end

-- Forget all edges from a run.
local function cut_behind(id)
  for _, successor in ipairs(call('HKEYS', prefix .. 'f:' .. id)) do call('HDEL', prefix .. 'a:' .. successor, id) end
  call('DEL', prefix .. 'f:' .. id)
end

-- Forget all edges to a run.
local function cut_before(id)
  for _, before in ipairs(call('HKEYS', prefix .. 'a:' .. id)) do
    if call('HDEL', prefix .. 'f:' .. before, id) == 1 and call('EXISTS', runs .. before) == 1 then
      call('HINCRBY', runs .. before, 'f', -1)
    end
  end
  call('DEL', prefix .. 'a:' .. id)
end

-- Release or refuse the successors of ended runs, given as their statuses by id; answers the ids of the refused runs.
local function let_go(ends)
  local less, doomed, refused = {}, {}, {}
  for id, status in pairs(ends) do
    local edges = call('HGETALL', prefix .. 'f:' .. id)
    for i = 1, #edges, 2 do
      if bit.band(tonumber(edges[i + 1]) or 0, BITS[status]) == 0 then
        doomed[edges[i]] = doomed[edges[i]] or id
      else
        less[edges[i]] = (less[edges[i]] or 0) + 1
      end
    end
  end
  local function waits_of(id)
    local read = call('HMGET', runs .. id, 's', 'w')
    return read[1] == BLOCKED and tonumber(read[2]) or 0
  end
  for id, by in pairs(doomed) do
    if waits_of(id) > 0 then
      release(id, by)
      refused[#refused + 1] = id
    end
  end
  for id, by in pairs(less) do
    local waits = waits_of(id)
    if waits > 0 and not doomed[id] then
      if waits <= by then release(id) else call('HSET', runs .. id, 'w', waits - by) end
    end
  end
  return refused
end

-- Whether an ended run must be kept because of a successor.
local function is_needed(id)
  local edges = call('HGETALL', prefix .. 'f:' .. id)
  for i = 1, #edges, 2 do
    local status = call('HGET', runs .. edges[i], 's')
    if status and (UNFINISHED[status] or bit.band(tonumber(edges[i + 1]) or 0, HOLDS) > 0) then return true end
  end
  return false
end
