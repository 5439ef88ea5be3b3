-- uses: write heads insert queues runs
-- sweep: look through some runs for those that were altered, and file anew those that are not where they belong.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes all that runs have
--   ARGV  cursor (text; '0' at first), about how many, whether to look at the queues and leases, too
-- Answers the cursor of the next page ('0': this was the last), ids and heads of what was altered, how many were filed anew.
local LONGEST = 604800000000 -- microseconds: nobody leases a run for longer
local ids, found, mended = {}, {}, 0

local function mend() mended = mended + 1 end

-- Put a run back into an index; its members are in order only if all have the same score.
local function index(key, member)
  local score = call('ZSCORE', key, member)
  if not score or tonumber(score) ~= 0 then
    call('ZADD', key, '0', member)
    mend()
  end
end

local function file_waiting(id, run)
  local place = run.place
  if type(place) ~= 'string' or #place ~= PLACE_SIZE or not place:find('^%d+$') then return false end
  local member = place .. id
  if not call('ZSCORE', waiting .. run.queue, member) and not call('ZSCORE', delayed .. run.queue, member) then
    local at = sub(place, 7, 24)
    if at <= present then
      call('ZADD', waiting .. run.queue, '0', member)
    else
      call('ZADD', delayed .. run.queue, whole(tonumber(at) - 1e17), member)
    end
    mend()
  end
  return true
end

local function file_running(id, run)
  local token = run.token
  if type(token) ~= 'string' then return false end
  if call('SADD', held .. token, id) == 1 then mend() end
  if not call('ZSCORE', leases, token) and not call('ZSCORE', extended, id) then
    call('ZADD', leases, moment, token)
    mend()
  end
  return true
end

local function file(id, run)
  if #run.created ~= TIME or not run.created:find('^%d+$') or run.status > BROKEN or type(run.keep) ~= 'number' then
    return false
  end
  index(created_, run.created .. id)
  if run.status <= RUNNING and type(run.unique) == 'string' then
    local holder_ = call('HGET', unique, run.unique)
    if not holder_ or holder_ ~= id and call('HEXISTS', heads, holder_) == 0 then
      call('HSET', unique, run.unique, id)
      mend()
    end
  end
  if type(run.group) == 'string' then index(prefix .. 'g:' .. run.group, run.created .. id) end
  if run.status == PENDING then return file_waiting(id, run) end
  if run.status == RUNNING then return file_running(id, run) end
  if run.status ~= SUCCEEDED then index(prefix .. 's:' .. NAMES[run.status], run.created .. id) end
  if run.status < BROKEN and type(run.place) == 'string' then
    if call('SADD', together .. run.place, id) == 1 then mend() end
    if not call('ZSCORE', expires, run.place) then call('ZADD', expires, now + run.keep, run.place) end
  end
  return true
end

local page = call('HSCAN', heads, args[1], 'COUNT', args[2])
for i = 1, #page[2], 2 do
  local id, run = page[2][i], parsed(page[2][i + 1])
  if not run or not file(id, run) then ids[#ids + 1], found[#found + 1] = id, page[2][i + 1] end
end

if args[3] then
  -- A claim looks only into queues of which it is said that something waits in them.
  local all = call('HGETALL', totals)
  for i = 1, #all, 2 do
    local status, queue, number = sub(all[i], 1, 1), sub(all[i], 2), tonumber(all[i + 1])
    if status == '0' then
      call('HSET', totals, all[i], call('ZCARD', waiting .. queue) + call('ZCARD', delayed .. queue))
    elseif not number or number < 0 or number > 2 ^ 52 or number % 1 ~= 0 then
      call('HDEL', totals, all[i])
    end
  end
  for _, key in ipairs({ leases, extended }) do
    for _, member in ipairs(call('ZRANGEBYSCORE', key, whole(now + LONGEST), '+inf', 'LIMIT', 0, 1000)) do
      call('ZADD', key, moment, member)
      mend()
    end
  end
end
if mended > 0 then tell() end
return { page[1], ids, found, mended }
