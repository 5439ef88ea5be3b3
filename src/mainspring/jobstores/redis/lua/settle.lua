-- uses: write heads insert runs
-- settle: write each outcome whose condition holds for the stored run, with what follows from it.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes all that runs have, and outbox, outbox_runs
--   ARGV  {run id, condition, bytes 4 to 11 of the head and its block B, token, node, rest} of each outcome; the rest is
--         absent or {urgency, run time, lease until, big state, live, followers, followers for other shards}, '' leaving
--         the live that is there; a follower is a run as lib_insert has it, one for another shard {id, bytes}
-- Answers for each 1 written, 0 refused, 2 no such run.
local outcomes, answers = args[1], {}
local NO_REST = { '', 0, 0, '', '', {}, {} }
local ids, followers, keys, texts = {}, {}, {}, {}
for i, outcome in ipairs(outcomes) do
  ids[i] = outcome[1]
  if byte(outcome[3], 9) ~= 192 then -- it has a unique key
    local _, key = cmsgpack.unpack_limit(outcome[3], 1, 8)
    keys[#keys + 1] = key
  end
  local rest = outcome[6] or NO_REST
  if rest[1] ~= '' then check(rest[1], URGENCY_SIZE) end
  for _, run in ipairs(rest[6]) do followers[#followers + 1] = run end
end
read(ids)
if #followers > 0 then read_for_insert(followers) end
local holders = many('HMGET', unique, keys)
for i, key in ipairs(keys) do holder[key] = holders[i] end

local function lease_over(id, token)
  local over = call('ZSCORE', extended, id) or call('ZSCORE', leases, token or '')
  return (tonumber(over) or 0) <= now
end

local function holds(condition, old, id)
  if condition == 'held' then return old.status == RUNNING end
  if condition == 'waiting' then return old.status == PENDING end
  if condition == 'finished' then return old.status > RUNNING end
  return old.status == RUNNING and lease_over(id, old.token)
end

-- Keep the count of a job's unfinished runs and the unique key right.
local function keep_books(id, old, key, is_final)
  local was_final = old.status > RUNNING
  if old.owner and was_final ~= is_final then owe(old.owner, old.job, was_final and 1 or -1) end
  if old.unique and not was_final then
    holder[old.unique] = false
    note(hdels, unique, old.unique)
  end
  if key and not is_final then
    holder[key] = id
    note(hsets, unique, key, id)
  end
end

-- Token and node as a head has them.
local function text(value)
  if not value then return NIL end
  if not texts[value] then texts[value] = cmsgpack.pack(value) end
  return texts[value]
end

-- File the run under its new status; answers its place.
local function file(id, status, queue, old, keep, rest)
  if status > RUNNING then
    if status == old.status then add(prefix .. 'counters', NAMES[status], -1) end -- written again, not reached again
    return file_ended(id, status, queue, old.created, keep)
  end
  count(status, queue, 1)
  if status == PENDING then return put_into_queue(id, queue, rest[1], rest[2]) end
  lease(id, old.token, rest[3], true)
end

local function settle(outcome)
  local id, fixed, token, rest = outcome[1], outcome[3], text(outcome[4]), outcome[6] or NO_REST
  local old = known(id)
  if not old then return 2 end
  if sub(old.head, old.c, old.c + #token - 1) ~= token or not holds(outcome[2], old, id) then return 0 end
  local status = byte(fixed)
  if status == PENDING and old.status == RUNNING and byte(old.head, 10) == 195 then return 0 end -- it is to be stopped
  local _, key, queue, keep = cmsgpack.unpack_limit(fixed, 3, 8)
  if key and status <= RUNNING and holder[key] and holder[key] ~= id then return 0 end
  unfile(id, old)
  keep_books(id, old, key, status > RUNNING)
  local place = file(id, status, queue, old, keep, rest)
  local head = MAGIC .. sub(fixed, 1, 8) .. sub(old.head, 12, 16) .. UINT .. struct.pack('>I4', old.b + #fixed - 8)
    .. sub(old.head, A, old.b - 1) .. sub(fixed, 9) .. token .. text(outcome[5]) .. place_text(place)
  note(hsets, heads, id, head)
  found[id] = head
  if byte(old.head, 11) == 195 and byte(fixed, 8) ~= 195 then note(hdels, prefix .. 'states', id) end
  store_bytes(id, rest[4], rest[5])
  for _, run in ipairs(rest[6]) do insert(run) end
  for _, run in ipairs(rest[7]) do
    note(hsets, prefix .. 'outbox', run[1], moment)
    note(hsets, prefix .. 'outbox_runs', run[1], run[2])
  end
  return 1
end

for i, outcome in ipairs(outcomes) do answers[i] = settle(outcome) end
finish()
return answers
