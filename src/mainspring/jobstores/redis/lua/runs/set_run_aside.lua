-- uses: write runs edges lifecycle read
-- set_run_aside: replace an altered run by one that can be read, in two calls: the first reads it, the second writes.
--   KEYS  prefix, jobs, times (see lib/base); reads and writes all that runs have
--   ARGV  id; in the second call also the bytes that the first call answered, and the new run (see lib/runs)
-- The first call answers the run's fields (see lib/read) and its whole hash as bytes, or nil if there is no such run.
-- The second answers 1, or 0 if the run has changed since.
local id, old, new = args[1], args[2], args[3]
local all = call('HGETALL', runs .. id)
if not old then return #all > 0 and { run_rows({ id })[2][1], cmsgpack.pack(all) } end
if #all == 0 or cmsgpack.pack(all) ~= old then return 0 end
local run = {}
for i = 1, #all, 2 do run[all[i]] = all[i + 1] ~= '' and all[i + 1] end
local status, lane, token, place = run.s, run.q or '', run.k, run.p

call('ZREM', extended, id)
if token then
  call('SREM', held .. token, id)
  if call('EXISTS', held .. token) == 0 then call('ZREM', leases, token) end
end
if place then
  for _, kind in ipairs({ waiting, delayed }) do call('ZREM', kind .. lane, place .. id) end
  call('SREM', together .. place, id)
end
if run.g then
  if status == BLOCKED then unpark(id, run.g, lane) end
  call('SREM', prefix .. 'm:' .. run.g, id)
  call('SREM', prefix .. 'l:' .. run.g, id)
  freed[run.g] = 1
end
if run.unique and call('HGET', unique, run.unique) == id then call('HDEL', unique, run.unique) end
if UNFINISHED[status] and run.job and run.incarnation then owe(run.job, run.incarnation, -1) end
if FINAL[status] or UNFINISHED[status] then count(status, lane, -1) end
-- The altered value may be the creation time, so look at all members that end in the id; this happens rarely.
local cursor = '0'
repeat
  local page = call('ZSCAN', created_, cursor, 'COUNT', 1000)
  cursor = page[1]
  for i = 1, #page[2], 2 do
    local member = page[2][i]
    if member:sub(TIME + 1) == id then
      call('ZREM', created_, member)
      for status in pairs(FINAL) do call('ZREM', prefix .. 's:' .. status, member) end
    end
  end
until cursor == '0'
new[CALL] = call('HGET', calls, id) or ''
call('DEL', runs .. id)
write_new(new)
local successors = call('HLEN', prefix .. 'f:' .. id)
if successors > 0 or call('EXISTS', prefix .. 'a:' .. id) == 1 then
  call('HSET', runs .. id, 'more', '1', 'w', '0', 'f', successors)
  if not FINAL[status] then let_go({ [id] = BROKEN }) end
end
let_others_in()
finish()
tell('ends')
return 1
