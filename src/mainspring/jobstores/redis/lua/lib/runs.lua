-- lib/runs: the fields of a run, and the keys where its status files it. Needs lib/write.
-- A run is the hash r:<id>. A field that is absent or '' has no value. Redis keeps a hash compact while none of its
-- values is longer than 64 bytes. A script reads and writes only the fields it needs: each takes a fifth of a
-- microsecond.
--   s     status, a word
--   q     lane
--   m     numbers with a space between: creation time (18 digits, see lib/base), run time, priority, and the time of
--         the end, if it has ended
--   a     attempts; a claim adds a space and its time, which counts only while the run is running
--   k, h  token and node of the last claim
--   d     state, bytes; '>' if it is longer than 64 bytes: then it is in `states`
--   p     place. A pending run has its place in its lane: 6 digits of priority, 18 of run time, 20 of order, and a last
--         digit that is 1 if a claim has to read more than s, a and m. A running run may keep it. The place of an ended
--         run is the part after `e:` in the name of its set.
--   more  1 if the run may have one of the following fields, which few runs have; 'j' if it has only the first two:
--   job, incarnation
--         the job that it is a run of; the incarnation that counts it as unfinished (16 digits)
--   group, unique
--   cancelling
--         1 if the run is to be stopped
--   w     how many of the runs that it comes after have not ended; it is blocked while there are some
--   f     how many runs come after it
--   x     the run whose end refused it
--   g, n  the gate whose slot it needs, and the limit of that gate (see core/waiting/gates.py)
local BLOCKED, PENDING, RUNNING, SUCCEEDED, BROKEN = 'blocked', 'pending', 'running', 'succeeded', 'broken'
local UNFINISHED = { blocked = true, pending = true, running = true }
local FINAL = { succeeded = true, failed = true, cancelled = true, missed = true, broken = true }
local calls, states, lives, totals = prefix .. 'calls', prefix .. 'states', prefix .. 'lives', prefix .. 'totals'
local created_, by_job, unique = prefix .. 'created', prefix .. 'by_job', prefix .. 'unique'
local waiting, delayed = prefix .. 'w:', prefix .. 'd:'
local leases, extended, ended, expires = prefix .. 'leases', prefix .. 'extended', prefix .. 'ended', prefix .. 'expires'
local held, together, counters = prefix .. 't:', prefix .. 'e:', prefix .. 'counters'

-- A new run comes as an array. The values that few runs have are in a table by name: keep (of an ended run), sum (the
-- checksum of the job's id), job, incarnation, group, unique, token, state, live, after (its predecessors and masks, in
-- turn), and fields (names and values, in turn).
local ID, CALL, STATUS, LANE, CREATED, NUMBERS, URGENCY, RUN_AT, MORE = 1, 2, 3, 4, 5, 6, 7, 8, 9
local NO_MORE = {}

local changed = {}                       -- by run id: whether changes of it are collected and not written yet
local known = {}                         -- by id of a new run: whether it is in the store, or was lately
local lanes = {}                        -- by lane: {whether it is open, when the first of the delayed is due, its key}
local tally, owed = {}, {}               -- by status and lane, by job and incarnation: how many runs more there are
local left_tokens, left_ends = {}, {}    -- sets from which runs were taken
local fresh, sets = {}, {}               -- by token: until when the lease begun here; by retention: the set begun here
local exists = {}                        -- by key that may not exist: whether it does
local drops = {}                         -- keys of runs that are to be deleted
local freed = {}                         -- by gate: how many of its runs have stopped running, or have ended
local followed = {}                      -- by run id: whether a new run comes after it
local batch, number, stirred = nil, 1000000, false

-- -- reading -----------------------------------------------------------------------------------------------------------

-- Note where a run is filed, of its fields p and m; answers false if it does not say when it was created.
local function note_place(run, place, numbers)
  run.place, run.created = place ~= '' and place, (numbers or ''):match('^%d+')
  return run.created
end

-- The fields of a run that scripts need, with `located` also its place; false if the run does not exist or cannot be
-- read: one damaged record must not stop the others.
local function load_run(id, located)
  local read = located and call('HMGET', runs .. id, 's', 'q', 'k', 'more', 'p', 'm')
    or call('HMGET', runs .. id, 's', 'q', 'k', 'more')
  local status, lane = read[1], read[2]
  if not lane or not FINAL[status] and not UNFINISHED[status] then return false end
  local run = { status = status, lane = lane, token = read[3] }
  if read[4] == 'j' then
    local owner = call('HMGET', runs .. id, 'job', 'incarnation')
    run.job, run.incarnation, run.followed = owner[1], owner[1] and owner[2], 0
  elseif read[4] then
    local rare = call('HMGET', runs .. id, 'job', 'incarnation', 'group', 'unique', 'cancelling', 'w', 'f', 'x', 'g')
    run.job, run.incarnation, run.group, run.unique = rare[1], rare[1] and rare[2], rare[3], rare[4] ~= '' and rare[4]
    run.cancelling = rare[5] == '1'
    run.waits, run.followed, run.refused = tonumber(rare[6]), tonumber(rare[7]) or 0, rare[8] ~= '' and rare[8]
    run.gate = rare[9]
  end
  return (not located or note_place(run, read[5], read[6])) and run
end

-- Find out where a run that was loaded is filed.
local function locate(id, run) return note_place(run, unpack(call('HMGET', runs .. id, 'p', 'm'))) end

-- Whether a key that is often empty exists.
local function any(key)
  if exists[key] == nil then exists[key] = call('EXISTS', key) == 1 end
  return exists[key]
end

-- -- books -------------------------------------------------------------------------------------------------------------

local function count(status, lane, by)
  local counts = tally[status]
  if not counts then
    counts = {}
    tally[status] = counts
  end
  counts[lane] = (counts[lane] or 0) + by
end

-- Count a fired run as unfinished (1), or as ended (-1).
local function owe(job, incarnation, by)
  local owner = incarnation .. job
  local debt = owed[owner] or { job = job, incarnation = incarnation, by = 0 }
  debt.by = debt.by + by
  owed[owner] = debt
end

-- Change the count of unfinished runs of jobs that still have the incarnation which fired them. It is nine digits of the
-- job's state: see lib/jobs.
local function pay()
  local ids, debts, put = {}, {}, {}
  for _, debt in pairs(owed) do
    ids[#ids + 1], debts[#debts + 1] = debt.job, debt
  end
  for i, state in ipairs(many('HMGET', prefix .. 'job_states', ids)) do
    local sum = state and #state >= 77 and state:sub(17, 32) == debts[i].incarnation and tonumber(state:sub(69, 77))
    if sum then
      local paid = string.format('%09d', math.max(0, sum + debts[i].by))
      put[#put + 1], put[#put + 2] = ids[i], state:sub(1, 68) .. paid .. state:sub(78)
    end
  end
  many('HSET', prefix .. 'job_states', put)
  owed = {}
end

-- Write all that was collected.
local function write()
  for lane in pairs(tally[RUNNING] or {}) do count(PENDING, lane, 0) end -- a claim may have left a zero
  for status, counts in pairs(tally) do
    for lane, by in pairs(counts) do add(totals, status .. ':' .. lane, by) end
  end
  each('DEL', drops)
  flush()
  if next(owed) then pay() end
  for token in pairs(left_tokens) do
    if call('EXISTS', held .. token) == 0 then
      call('ZREM', leases, token)
      fresh[token] = nil
    end
  end
  for set in pairs(left_ends) do
    if call('EXISTS', together .. set) == 0 then
      call('ZREM', ended, set)
      call('ZREM', expires, set)
      sets = {}
    end
  end
  drops, tally, changed, left_tokens, left_ends = {}, {}, {}, {}, {}
end

-- Prepare for the change of a run; an earlier change of it in this call is written first.
local function touch(id)
  if changed[id] then write() end
  changed[id] = true
end

-- Write everything, and wake the callers that the changes may concern.
local function finish()
  write()
  if stirred then tell_of_runs() end
end

-- -- filing ------------------------------------------------------------------------------------------------------------

local function put_into_lane(id, lane, urgency, run_at, flag)
  local seen = lanes[lane]
  if not seen then
    local limit = call('HGET', prefix .. 'limits', queue_of(lane))
    seen = { not limit or (tonumber(limit) or 1) > 0, nil, waiting .. lane }
    lanes[lane] = seen
  end
  batch = batch or next_in_sequence()
  number = number + 10
  local place = urgency .. batch .. (number + flag)
  if run_at <= now then
    note(zadds, seen[3], '0', place .. id)
    stirred = stirred or seen[1]
    return place
  end
  if not seen[2] then
    seen[2] = tonumber(call('ZRANGE', delayed .. lane, 0, 0, 'WITHSCORES')[2]) or math.huge
  end
  note(zadds, delayed .. lane, run_at, place .. id)
  stirred = stirred or seen[1] and run_at < seen[2]
  return place
end

-- Lease a run; runs claimed together share a lease until one of them is extended alone.
local function lease(id, token, until_, alone)
  if not token then
    exists[extended] = true
    note(zadds, extended, until_, id)
    return
  end
  if fresh[token] == nil then fresh[token] = call('EXISTS', held .. token) == 0 end
  note(sadds, held .. token, id)
  if not alone and fresh[token] == true then
    fresh[token] = until_
    note(zadds, leases, until_, token)
  elseif alone or fresh[token] ~= until_ then
    exists[extended] = true
    note(zadds, extended, until_, id)
  end
end

-- Whether the user chose how long the runs of a set e: are kept.
local function is_chosen(set) return set:find('[13579]$') end

-- File an ended run with the runs that end now and are kept for as long; broken runs are kept for ever. Answers its place.
local function file_ended(id, status, created, keep)
  add(counters, status, 1)
  if status ~= SUCCEEDED then note(zadds, prefix .. 's:' .. status, '0', created .. id) end
  if status == BROKEN then return '' end
  local set = sets[keep]
  if not set then
    local name = moment .. '+' .. whole(keep)
    set = { name = name, key = together .. name }
    sets[keep] = set
    if not is_chosen(name) then note(zadds, ended, moment, name) end
    note(zadds, expires, now + keep, name)
  end
  if keep % 2 == 1 then add(prefix .. 'asked', 'runs', 1) end
  note(sadds, set.key, id)
  return set.name
end

-- The key and the member that file a run that waits for a slot.
local function parking(id, gate, lane)
  local created, _, priority = numbers_of(call('HGET', runs .. id, 'm'))
  return prefix .. 'b:' .. gate .. '\0' .. lane, urgency_of(priority, 0):sub(1, 6) .. created .. id
end

-- Let a run wait for a slot of its gate.
local function park(id, gate, lane)
  local key, word = parking(id, gate, lane)
  call('ZADD', key, '0', word)
  call('SADD', prefix .. 'B:' .. gate, lane)
end

local function unpark(id, gate, lane)
  local key, word = parking(id, gate, lane)
  if call('ZREM', key, word) == 1 and call('EXISTS', key) == 0 then call('SREM', prefix .. 'B:' .. gate, lane) end
end

-- Take a run out of the index of its status; locate a run first unless it is running.
local function unfile(id, run)
  local status, lane, place, token = run.status, run.lane, run.place, run.token
  touch(id)
  count(status, lane, -1)
  if run.gate and not FINAL[status] then
    if status == RUNNING and call('SREM', prefix .. 'l:' .. run.gate, id) == 1 then
      freed[run.gate] = (freed[run.gate] or 0) + 1
      run.freed = true
    elseif status == BLOCKED and (run.waits or 0) == 0 then
      unpark(id, run.gate, lane)
    end
  end
  if status == RUNNING then
    if any(prefix .. 'limits') and call('HEXISTS', prefix .. 'limits', queue_of(lane)) == 1 then stirred = true end
    if token then
      note(srems, held .. token, id)
      left_tokens[token] = true
    end
    if any(extended) then note(zrems, extended, id) end
  elseif status == PENDING then
    if place then
      note(zrems, waiting .. lane, place .. id)
      note(zrems, delayed .. lane, place .. id)
    end
  elseif status ~= BLOCKED then -- a blocked one is nowhere
    if status ~= SUCCEEDED then note(zrems, prefix .. 's:' .. status, run.created .. id) end
    if place then
      if is_chosen(place) then add(prefix .. 'asked', 'runs', -1) end
      note(srems, together .. place, id)
      left_ends[place] = true
    end
  end
end
