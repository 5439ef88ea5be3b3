-- lib_runs: where a run is filed, by its status, and how it leaves. Needs lib_insert.
local REMEMBERED_FOR, REMEMBERED = 3600000000, 100000
local NAMES = { [2] = 'succeeded', [3] = 'failed', [4] = 'cancelled', [5] = 'missed', [6] = 'broken' }
local leases, extended, ended, expires = prefix .. 'leases', prefix .. 'extended', prefix .. 'ended', prefix .. 'expires'
local held, together = prefix .. 't:', prefix .. 'e:'

local left_tokens, left_ends = {}, {}    -- sets from which runs were taken
local fresh, sets = {}, {}               -- by token: until when the lease begun here; by retention: number of a set
local any_extended, any_lives = nil, nil -- whether there are any

-- A run that was looked up or written; false if there is none.
local function known(id)
  local run = found[id]
  if type(run) == 'string' then
    run = parsed(run)
    found[id] = run
  end
  return run
end

local write_changes = write
write = function()
  write_changes()
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
  left_tokens, left_ends = {}, {}
end

-- Lease a run; runs claimed together share a lease until one of them is extended alone.
local function lease(id, token, until_, alone)
  if fresh[token] == nil then fresh[token] = call('EXISTS', held .. token) == 0 end
  note(sadds, held .. token, id)
  if not alone and fresh[token] == true then
    fresh[token] = until_
    note(zadds, leases, until_, token)
  elseif alone or fresh[token] ~= until_ then
    any_extended = true
    note(zadds, extended, until_, id)
  end
end

-- Put an ended run among those that ended now and are kept for as long; broken ones are kept for ever.
local function end_with_others(id, status, keep)
  if status == BROKEN then return nil end
  if not sets[keep] then
    sets[keep] = next_number()
    if keep % 2 == 0 then note(zadds, ended, moment, sets[keep]) end
    note(zadds, expires, now + keep, sets[keep])
  end
  if keep % 2 == 1 then add(prefix .. 'asked', 'runs', 1) end
  note(sadds, together .. sets[keep], id)
  return sets[keep]
end

-- File a run that ended; answers its place.
local function file_ended(id, status, queue, created, keep)
  count(status, queue, 1)
  add(prefix .. 'counters', NAMES[status], 1)
  if status ~= SUCCEEDED then note(zadds, prefix .. 's:' .. NAMES[status], '0', created .. id) end
  return end_with_others(id, status, keep)
end

file_new = function(run, until_)
  local id, status, queue = run[ID], byte(run[HEAD], 4), run[QUEUE]
  if status > RUNNING then return file_ended(id, status, queue, run[CREATED], run[KEEP]) end
  count(status, queue, 1)
  if status == PENDING then return put_into_queue(id, queue, run[URGENCY], run[RUN_AT]) end
  lease(id, run[TOKEN], until_)
end

-- Take a run out of where its status has it.
local function unfile(id, run)
  local status = run.status
  touch(id)
  count(status, run.queue, -1)
  if status == PENDING then
    if run.place then
      note(zrems, waiting .. run.queue, run.place .. id)
      note(zrems, delayed .. run.queue, run.place .. id)
    end
  elseif status == RUNNING then
    if run.token then
      note(srems, held .. run.token, id)
      left_tokens[run.token] = true
      if any_extended == nil then any_extended = call('EXISTS', extended) == 1 end
      if any_extended then note(zrems, extended, id) end
    end
  else
    if status ~= SUCCEEDED then note(zrems, prefix .. 's:' .. NAMES[status], run.created .. id) end
    if status ~= BROKEN and run.keep % 2 == 1 then add(prefix .. 'asked', 'runs', -1) end
    if run.place then
      note(srems, together .. run.place, id)
      left_ends[run.place] = true
    end
  end
end

-- Take a run out of everything but the indexes of its status.
local function erase(id, run)
  note(hdels, heads, id)
  note(hdels, calls, id)
  if byte(run.head, 11) == 195 then note(hdels, prefix .. 'states', id) end
  if any_lives == nil then any_lives = call('EXISTS', prefix .. 'lives') == 1 end
  if any_lives then note(hdels, prefix .. 'lives', id) end
  local aged = run.created .. id
  note(zrems, created_, aged)
  if run.job then note(zrems, by_job, aged) end
  if run.group then note(zrems, prefix .. 'g:' .. run.group, aged) end
  found[id] = false
end

-- Ids of deleted runs are remembered for an hour at least, until there are too many of them.
local function forget_old_ids()
  local since = tonumber(call('GET', prefix .. 'gone_since')) or 0
  if now - since < REMEMBERED_FOR and call('SCARD', prefix .. 'gone') < REMEMBERED then return end
  call('UNLINK', prefix .. 'gone_before')
  if call('EXISTS', prefix .. 'gone') == 1 then call('RENAME', prefix .. 'gone', prefix .. 'gone_before') end
  call('SET', prefix .. 'gone_since', moment)
end

-- Delete finished runs.
local function delete(ids)
  if #ids == 0 then return end
  for _, id in ipairs(ids) do
    local run = known(id)
    unfile(id, run)
    erase(id, run)
  end
  write()
  forget_old_ids()
  many('SADD', prefix .. 'gone', ids)
end
