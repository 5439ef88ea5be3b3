-- uses: write runs edges lifecycle
-- settle: write each outcome whose condition holds for the stored run, and all its consequences for other runs.
--   KEYS  prefix, jobs, times (see lib/base); reads and writes all that runs have, and outbox, outbox_runs; tells ends
--   ARGV  {run id, condition, token, status, lane, numbers (see lib/runs), how long to keep it, state, more} of each
--         outcome. If present, `more` has by name: unique, cancelling, live, followers (runs in the form of lib/runs),
--         away ({id, bytes} of followers for other shards), by (the run that refuses it); for an unfinished run also
--         attempts, node ('' if none), urgency, run_at, until (when its lease ends), and after (only if the run is sent
--         back; in the form of lib/runs). An end leaves attempts and node, which belong to the token, as they are,
--         unless the run was refused.
-- Answers a number for each outcome: 1 written, 0 not written, 2 no such run; and the ids of the runs that these ends
-- refuse.
local answers, refused = {}, {}
local ends, again, closed = {}, {}, {} -- followed runs that end here; those sent back; all that end here
for _, outcome in ipairs(args[1]) do
  local more = outcome[9]
  if more then
    if outcome[4] == PENDING then check(more.urgency, URGENCY_SIZE) end -- a blocked one has none yet
    if more.followers then prepare(more.followers) end
  end
end

local function lease_over(id, token)
  local over = call('ZSCORE', extended, id) or call('ZSCORE', leases, token or '')
  return (tonumber(over) or 0) <= now
end

-- A run that is pending can be written as blocked only if it was refused: it is sent back.
local function may_change(old, status)
  return FINAL[status] or old.status == status or status == RUNNING and old.status == PENDING or status == BLOCKED and old.status == PENDING and old.refused
end

local function holds(condition, old, id, status, by)
  if condition == 'held' then return old.status == RUNNING end
  if condition == 'waiting' then
    return (old.status == PENDING or old.status == BLOCKED) and may_change(old, status)
  end
  if condition == 'refused' then
    return (old.status == PENDING or old.status == BLOCKED) and (old.refused or closed[by or ''])
  end
  if condition == 'finished' then return FINAL[old.status] end
  return old.status == RUNNING and lease_over(id, old.token)
end

-- Free the unique key that a run had, and take the one that it needs; answers false if another run has it.
local function change_key(id, old, key)
  if key and not take_key(key, id) then return false end
  local had = old.unique
  if had and had ~= key and call('HGET', unique, had) == id then call('HDEL', unique, had) end
  return true
end

-- File the run under its new status; answers its place.
local function file(id, status, lane, old, keep, more)
  count(status, lane, 1)
  if status == PENDING then return put_into_lane(id, lane, more.urgency, more.run_at, 1) end
  if status == RUNNING then
    lease(id, old.token, more['until'], true)
    return ''
  end
  if status == BLOCKED then return '' end -- parked below, if it waits for a slot
  if status == old.status then add(prefix .. 'counters', status, -1) end -- written again, not reached again
  return file_ended(id, status, old.created, keep)
end

local function settle(id, condition, token, status, lane, numbers, keep, state, more)
  local old, is_final = load_run(id), FINAL[status]
  more = more or NO_MORE
  if not old then return 2 end
  if old.token ~= token or not holds(condition, old, id, status, more.by) then return 0 end
  if status == PENDING and old.cancelling and old.status == RUNNING then return 0 end -- it is to be stopped
  if (old.status ~= RUNNING or status ~= SUCCEEDED) and not locate(id, old) then return 2 end
  if not change_key(id, old, not is_final and more.unique) then return 0 end
  if old.incarnation and not is_final ~= not FINAL[old.status] then owe(old.job, old.incarnation, is_final and -1 or 1) end
  unfile(id, old)
  local place = file(id, status, lane, old, keep, more)
  call('HSET', runs .. id, 's', status, 'm', numbers, 'p', place, 'd', keep_state(id, state))
  if lane ~= old.lane then call('HSET', runs .. id, 'q', lane) end
  if more.attempts then call('HSET', runs .. id, 'a', more.attempts, 'h', more.node) end
  if old.unique or more.unique or old.cancelling or more.cancelling then
    call('HSET', runs .. id, 'more', '1', 'unique', more.unique or '', 'cancelling', more.cancelling or '')
  end
  if more.live then note(hsets, lives, id, more.live) end
  local was_final = FINAL[old.status]
  if old.gate then
    if is_final then
      if call('SREM', prefix .. 'm:' .. old.gate, id) == 1 and not old.freed and not old.refused then
        freed[old.gate] = (freed[old.gate] or 0) + 1
      end
    else
      call('SADD', prefix .. 'm:' .. old.gate, id)
      if status == RUNNING then call('SADD', prefix .. 'l:' .. old.gate, id) end
      if status == BLOCKED and old.status == BLOCKED and (old.waits or 0) == 0 then
        local _, run_at = numbers_of(numbers)
        if run_at > now then release(id) else park(id, old.gate, lane) end -- a postponed one is judged when it is due
      end
    end
  end
  if is_final then
    closed[id] = true
    if not was_final and (old.followed or 0) > 0 then ends[id] = status end
    if condition == 'refused' and not old.refused then call('HSET', runs .. id, 'more', '1', 'x', more.by) end
  elseif was_final or status == BLOCKED and old.status == PENDING then
    if old.waits or (old.followed or 0) > 0 then
      cut_before(id)
      if was_final then
        cut_behind(id)
        call('HSET', runs .. id, 'f', '0')
      end
      call('HSET', runs .. id, 'w', '0', 'x', '')
    end
    if status == BLOCKED then again[#again + 1] = { id, more.after or {} } end
  end
  for _, run in ipairs(more.away or {}) do
    note(hsets, prefix .. 'outbox', run[1], moment)
    note(hsets, prefix .. 'outbox_runs', run[1], run[2])
  end
  return 1
end

for i, outcome in ipairs(args[1]) do answers[i] = settle(unpack(outcome, 1, 9)) end
if next(ends) then refused = let_go(ends) end
for _, each_ in ipairs(again) do
  local id, after = each_[1], each_[2]
  local waits, by = judge(after, true)
  call('HSET', runs .. id, 'more', '1', 'w', waits)
  link(id, after)
  if waits == 0 then
    release(id, by)
    if by then refused[#refused + 1] = id end
  end
end
for i, outcome in ipairs(args[1]) do
  if answers[i] == 1 and outcome[9] then
    for _, run in ipairs(outcome[9].followers or {}) do
      local _, by = insert(run)
      if by then refused[#refused + 1] = run[ID] end
    end
  end
end
let_others_in()
finish()
if next(closed) then tell('ends') end
return { answers, refused }
