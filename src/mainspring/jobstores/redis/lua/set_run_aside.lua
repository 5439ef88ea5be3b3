-- uses: write heads insert runs
-- set_run_aside: keep a run whose head was altered, under a head that can be read.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes all that runs have
--   ARGV  id, the head that it must have, the id that it gets, the new head without its place, its queue, creation time
-- Answers 1, or 0 if it has another head.
local id, old, new_id, head, queue, created = args[1], args[2], args[3], args[4], args[5], args[6]
if call('HGET', heads, id) ~= old then return 0 end
local run = parsed(old) or {}
local function text(value) return type(value) == 'string' and value end

call('ZREM', extended, id)
if text(run.token) then
  call('SREM', held .. run.token, id)
  if call('EXISTS', held .. run.token) == 0 then call('ZREM', leases, run.token) end
end
if text(run.place) then
  for _, kind in ipairs({ waiting, delayed }) do call('ZREM', kind .. (run.queue or ''), run.place .. id) end
  call('SREM', together .. run.place, id)
end
if text(run.unique) and call('HGET', unique, run.unique) == id then call('HDEL', unique, run.unique) end
if text(run.owner) and text(run.job) and run.status <= RUNNING then owe(run.owner, run.job, -1) end
if run.queue and run.status <= BROKEN then count(run.status, run.queue, -1) end
-- Its creation time may be what was altered, so all that end in its id are looked at, which is seldom.
local cursor = '0'
repeat
  local page = call('ZSCAN', created_, cursor, 'COUNT', 1000)
  cursor = page[1]
  for i = 1, #page[2], 2 do
    local member = page[2][i]
    if sub(member, TIME + 1) == id then
      call('ZREM', created_, member)
      for _, name in pairs(NAMES) do call('ZREM', prefix .. 's:' .. name, member) end
    end
  end
until cursor == '0'

if new_id ~= id then
  for _, name in ipairs({ 'calls', 'states', 'lives' }) do
    local bytes = call('HGET', prefix .. name, id)
    if bytes then call('HSET', prefix .. name, new_id, bytes) end
    call('HDEL', prefix .. name, id)
  end
  call('HDEL', heads, id)
end
call('HSET', heads, new_id, head .. NIL)
call('ZADD', created_, '0', created .. new_id)
file_ended(new_id, BROKEN, queue, created, 0)
finish()
return 1
