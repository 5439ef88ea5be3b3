-- lib/lifecycle: add runs and delete them. Needs lib/edges.
local LONGEST_VALUE, REMEMBERED_FOR, REMEMBERED = 64, 3600000000, 100000

-- Store a state elsewhere if it is too long for the hash of its run; answers the value for the hash.
local function keep_state(id, state)
  if #state <= LONGEST_VALUE then
    if any(states) then note(hdels, states, id) end
    return state
  end
  exists[states] = true
  note(hsets, states, id, state)
  return '>'
end

-- Refuse new runs that could not be filed, before anything is written; look up which of them are known.
local function prepare(new)
  local ids, keys = {}, {}
  for i, run in ipairs(new) do
    local created, urgency = run[CREATED], run[URGENCY]
    if #created ~= TIME then check(created, TIME) end
    if #urgency ~= URGENCY_SIZE and urgency ~= '' then check(urgency, URGENCY_SIZE) end
    ids[i], keys[i] = run[ID], runs .. run[ID]
    for n = 1, #(run[MORE] and run[MORE].after or NO_MORE), 2 do followed[run[MORE].after[n]] = true end
  end
  if each('EXISTS', keys) > 0 then
    for i, id in ipairs(ids) do known[id] = call('EXISTS', keys[i]) == 1 end
  end
  for _, name in ipairs({ 'gone', 'gone_before' }) do
    for i, is in ipairs(many('SMISMEMBER', prefix .. name, ids)) do
      if is == 1 then known[ids[i]] = true end
    end
  end
end

-- Take a unique key for a run; answers false if another run has it.
local function take_key(key, id)
  return call('HSETNX', unique, key, id) == 1 or call('HGET', unique, key) == id
end

-- Add a run that is new.
local function write_new(run, until_)
  local id, status, lane, created, more = run[ID], run[STATUS], run[LANE], run[CREATED], run[MORE]
  local aged, place = created .. id, ''
  touch(id)
  count(status, lane, 1)
  if status == PENDING then
    place = put_into_lane(id, lane, run[URGENCY], run[RUN_AT], (more or followed[id]) and 1 or 0)
  elseif status == RUNNING then
    lease(id, more.token, until_)
  elseif status ~= BLOCKED then
    place = file_ended(id, status, created, more.keep)
  end
  known[id] = true
  note(hsets, calls, id, run[CALL])
  note(zadds, created_, '0', aged)
  if not more then
    call('HSET', runs .. id, 's', status, 'q', lane, 'm', run[NUMBERS], 'p', place)
  else
    local state = keep_state(id, more.state)
    call('HSET', runs .. id, 's', status, 'q', lane, 'm', run[NUMBERS], 'p', place, 'd', state, unpack(more.fields))
    if more.live then note(hsets, lives, id, more.live) end
    if more.job then note(zadds, by_job, more.sum, aged) end
    if more.group then note(zadds, prefix .. 'g:' .. more.group, '0', aged) end
  end
end

-- Add an unfinished run unless its id is known, its unique key is taken, or a predecessor does not exist; answers whether
-- it was added (nil: a predecessor does not exist), and the predecessor that refuses it.
local function insert(run, until_)
  local id, more = run[ID], run[MORE]
  if known[id] then return false end
  local after, refused = more and more.after, nil
  if after then
    local waits
    waits, refused = judge(after)
    if not waits then return nil end
    run[STATUS] = waits > 0 and BLOCKED or PENDING
    local fields = more.fields
    fields[#fields + 1], fields[#fields + 2], fields[#fields + 3], fields[#fields + 4] = 'w', waits, 'x', refused or ''
    if waits == 0 and (refused or run[RUN_AT] < 0) then
      run[RUN_AT] = refused and now or now - run[RUN_AT]
      local _, _, priority = numbers_of(run[NUMBERS])
      run[NUMBERS] = run[CREATED] .. ' ' .. whole(run[RUN_AT]) .. ' ' .. whole(priority)
      run[URGENCY] = urgency_of(tonumber(priority), run[RUN_AT])
    end
  end
  if more then
    if more.unique and not take_key(more.unique, id) then return false end
    if more.incarnation then owe(more.job, more.incarnation, 1) end
  end
  write_new(run, until_)
  if after then link(id, after) end
  if more and more.gate then call('SADD', prefix .. 'm:' .. more.gate, id) end
  return true, refused
end

-- Take a run out of everything but the indexes of its status.
local function erase(id, run)
  drops[#drops + 1] = runs .. id
  note(hdels, calls, id)
  if any(states) then note(hdels, states, id) end
  if any(lives) then note(hdels, lives, id) end
  if run.waits or (run.followed or 0) > 0 then
    cut_before(id)
    cut_behind(id)
  end
  local aged = run.created .. id
  note(zrems, created_, aged)
  if run.job then note(zrems, by_job, aged) end
  if run.group then note(zrems, prefix .. 'g:' .. run.group, aged) end
end

-- Forget old ids of deleted runs; each is remembered for at least an hour, unless there are too many.
local function forget_old_ids()
  local since = tonumber(call('GET', prefix .. 'gone_since')) or 0
  if now - since < REMEMBERED_FOR and call('SCARD', prefix .. 'gone') < REMEMBERED then return end
  call('UNLINK', prefix .. 'gone_before')
  if call('EXISTS', prefix .. 'gone') == 1 then call('RENAME', prefix .. 'gone', prefix .. 'gone_before') end
  call('SET', prefix .. 'gone_since', moment)
end

-- Delete finished runs that were located, by id.
local function delete(found)
  local ids = {}
  for id, run in pairs(found) do
    unfile(id, run)
    erase(id, run)
    ids[#ids + 1] = id
  end
  if #ids == 0 then return end
  write()
  forget_old_ids()
  many('SADD', prefix .. 'gone', ids)
end
