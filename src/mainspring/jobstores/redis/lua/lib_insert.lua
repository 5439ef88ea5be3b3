-- lib_insert: put new runs in. Needs lib_write and lib_heads.
-- A new run comes as an array of these; absent values are false, absent bytes are ''. Its head lacks the place; the sum is
-- the checksum of its job's id.
local ID, HEAD, CALL, QUEUE, CREATED, OWNER, JOB, GROUP, UNIQUE, TOKEN, KEEP, URGENCY, RUN_AT, STATE, LIVE, SUM =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
local PLACE_SIZE = 44 -- 6 of priority, 18 of run time, 20 of number
local calls, created_, by_job, unique = prefix .. 'calls', prefix .. 'created', prefix .. 'by_job', prefix .. 'unique'
local waiting, delayed = prefix .. 'w:', prefix .. 'd:'

local found, damaged, remembered = {}, {}, {} -- by run id: head or false; whether it cannot be read; whether it is gone
local changed = {}                            -- by run id: whether changes of it are collected and not written yet
local holder = {}                             -- by unique key: run id or false
local queues = {}                              -- by queue: {whether it is open, when the first of the delayed is due}
local tally, owed, debtors = {}, {}, {}       -- by status and queue, by owner: how many runs more there are; owner's job
local batch, number, stirred = nil, 100000, false

-- Look runs up, once each.
local function read(ids)
  local unread = {}
  for _, id in ipairs(ids) do
    if found[id] == nil then
      found[id] = false
      unread[#unread + 1] = id
    end
  end
  local heads_ = many('HMGET', heads, unread)
  for i, id in ipairs(unread) do
    if heads_[i] then
      found[id] = parsed(heads_[i])
      damaged[id] = not found[id]
    end
  end
end

-- Look up what stands in the way of new runs: their ids and unique keys.
local function read_for_insert(runs)
  local ids, keys = {}, {}
  for i, run in ipairs(runs) do
    ids[i] = run[ID]
    local created, urgency = run[CREATED], run[URGENCY]
    if #created ~= TIME then check(created, TIME) end
    if #urgency ~= URGENCY_SIZE and urgency ~= '' then check(urgency, URGENCY_SIZE) end
    if run[UNIQUE] then keys[#keys + 1] = run[UNIQUE] end
  end
  read(ids)
  local gone, gone_before = many('SMISMEMBER', prefix .. 'gone', ids), many('SMISMEMBER', prefix .. 'gone_before', ids)
  for i, id in ipairs(ids) do
    if gone[i] + gone_before[i] > 0 then remembered[id] = true end
  end
  local holders = many('HMGET', unique, keys)
  for i, key in ipairs(keys) do holder[key] = holders[i] end
end

local function count(status, queue, by)
  local counts = tally[status]
  if not counts then
    counts = {}
    tally[status] = counts
  end
  counts[queue] = (counts[queue] or 0) + by
end

-- Change the count of unfinished runs of jobs that still have the incarnation which fired them. It is nine digits of the
-- job's state: see lib_jobs.
local function pay()
  local ids, incarnations, changes, put = {}, {}, {}, {}
  for owner, by in pairs(owed) do
    local job, size = debtors[owner], #ids + 1
    local incarnation = sub(owner, #job + 2)
    if #incarnation < 16 then incarnation = sub('0000000000000000' .. incarnation, -16) end
    if sub(owner, 1, #job) == job then ids[size], changes[size], incarnations[size] = job, by, incarnation end
  end
  for i, state in ipairs(many('HMGET', prefix .. 'job_states', ids)) do
    local sum = state and #state >= 77 and sub(state, 17, 32) == incarnations[i] and tonumber(sub(state, 69, 77))
    if sum then
      put[#put + 1] = ids[i]
      put[#put + 1] = sub(state, 1, 68) .. string.format('%09d', math.max(0, sum + changes[i])) .. sub(state, 78)
    end
  end
  many('HSET', prefix .. 'job_states', put)
  owed = {}
end

-- A fired run is unfinished from now on (1), or is no longer (-1).
local function owe(owner, job, by)
  owed[owner] = (owed[owner] or 0) + by
  debtors[owner] = job or ''
end

-- Write all that was collected.
local write = function()
  for queue in pairs(tally[RUNNING] or {}) do count(PENDING, queue, 0) end -- a claim may have left a zero
  for status, counts in pairs(tally) do
    for queue, by in pairs(counts) do add(prefix .. 'totals', status .. queue, by) end
  end
  flush()
  if next(owed) then pay() end
  tally, changed = {}, {}
end

-- A run is about to change: if it did before in this call, that is written first.
local function touch(id)
  if changed[id] then write() end
  changed[id] = true
end

-- A number that is higher than that of every earlier call, of a fixed width.
local function next_number()
  batch = batch or next_in_sequence()
  number = number + 1
  return batch .. number
end

local function put_into_queue(id, queue, urgency, run_at)
  local known = queues[queue]
  if not known then
    known = { call('SISMEMBER', prefix .. 'paused', queue) == 0, nil }
    queues[queue] = known
  end
  local place = urgency .. next_number()
  if run_at <= now then
    note(zadds, waiting .. queue, '0', place .. id)
    stirred = stirred or known[1]
    return place
  end
  if not known[2] then
    known[2] = tonumber(call('ZRANGE', delayed .. queue, 0, 0, 'WITHSCORES')[2]) or math.huge
  end
  note(zadds, delayed .. queue, run_at, place .. id)
  stirred = stirred or known[1] and run_at < known[2]
  return place
end

-- File a new run under its status, which is pending here; answers its place.
local file_new = function(run)
  count(PENDING, run[QUEUE], 1)
  return put_into_queue(run[ID], run[QUEUE], run[URGENCY], run[RUN_AT])
end

local function store_bytes(id, state, live)
  if state ~= '' then note(hsets, prefix .. 'states', id, state) end
  if live ~= '' then note(hsets, prefix .. 'lives', id, live) end
end

-- Add a run that is new.
local function write_new(run, until_)
  local id, created = run[ID], run[CREATED]
  touch(id)
  local head = run[HEAD] .. place_text(file_new(run, until_))
  found[id] = head
  note(hsets, heads, id, head)
  note(hsets, calls, id, run[CALL])
  store_bytes(id, run[STATE], run[LIVE])
  local aged = created .. id
  note(zadds, created_, '0', aged)
  if run[JOB] then note(zadds, by_job, run[SUM], aged) end
  if run[GROUP] then note(zadds, prefix .. 'g:' .. run[GROUP], '0', aged) end
end

-- Add an unfinished run unless its id is known or its unique key is taken.
local function insert(run, until_)
  local id, key = run[ID], run[UNIQUE]
  if found[id] or damaged[id] or remembered[id] then return false end
  if key then
    if holder[key] and holder[key] ~= id then return false end
    holder[key] = id
    note(hsets, unique, key, id)
  end
  if run[OWNER] then owe(run[OWNER], run[JOB], 1) end
  write_new(run, until_)
  return true
end

-- Write everything and wake who may want to know.
local function finish()
  write()
  if stirred then tell() end
end
