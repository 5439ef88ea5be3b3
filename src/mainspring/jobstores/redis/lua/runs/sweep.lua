-- uses: write runs queues
-- sweep: find the altered runs of a page, and file the others anew if they are not where they belong.
--   KEYS  prefix, jobs, times (see lib/base); reads and writes all that runs have
--   ARGV  where to look: `created` lists all runs, and `calls` finds runs that `created` has lost; cursor (text; '0' at
--         first); about how many runs to read; whether to check the totals of the lanes and the leases, too
-- Answers the cursor of the next page ('0': there is none), the ids of altered runs, and the number of corrections.
local LONGEST = 604800000000 -- microseconds: nobody leases a run for longer
local source, cursor, most = args[1], args[2], args[3]
local altered, mended = {}, 0
local busy = {} -- lanes in which runs wait

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
  if not place or #place ~= PLACE_SIZE or not place:find('^%d+$') then return false end
  local member = place .. id
  busy[run.lane] = true
  if not call('ZSCORE', waiting .. run.lane, member) and not call('ZSCORE', delayed .. run.lane, member) then
    local at = run_at_of(place)
    if at <= present then
      call('ZADD', waiting .. run.lane, '0', member)
    else
      call('ZADD', delayed .. run.lane, whole(tonumber(at) - 1e17), member)
    end
    mend()
  end
  return true
end

local function file_running(id, run)
  local token = run.token
  if not token then return false end
  if call('SADD', held .. token, id) == 1 then mend() end
  if run.gate and not run.refused then call('SADD', prefix .. 'l:' .. run.gate, id) end
  if not call('ZSCORE', leases, token) and not call('ZSCORE', extended, id) then
    call('ZADD', leases, moment, token)
    mend()
  end
  return true
end

local function file_among_ended(id, run)
  local place = run.place
  if run.status ~= SUCCEEDED then index(prefix .. 's:' .. run.status, run.created .. id) end
  if run.status == BROKEN then return true end
  local at, keep = (place or ''):match('^(%d+)%+(%d+)$')
  if not at then return false end
  local is_listed = call('ZSCORE', expires, place)
  if call('SISMEMBER', together .. place, id) == 0 then
    if not is_listed then return false end -- neither knows of it: the place itself was altered
    call('SADD', together .. place, id)
    mend()
  end
  if not is_listed then call('ZADD', expires, at + keep, place) end
  return true
end

local function file(id, run)
  if #run.created ~= TIME or not run.created:find('^%d+$') then return false end
  index(created_, run.created .. id)
  if UNFINISHED[run.status] and run.unique then
    local holder = call('HGET', unique, run.unique)
    if not holder or holder ~= id and call('EXISTS', runs .. holder) == 0 then
      call('HSET', unique, run.unique, id)
      mend()
    end
  end
  if run.group then index(prefix .. 'g:' .. run.group, run.created .. id) end
  if run.status == BLOCKED then
    if run.gate and (run.waits or 0) == 0 then park(id, run.gate, run.lane) end
    return run.waits ~= nil or run.gate
  end
  if run.status == PENDING then return file_waiting(id, run) end
  if run.status == RUNNING then return file_running(id, run) end
  return file_among_ended(id, run)
end

-- A page of ids, each of `created` with its member there.
local function next_page()
  if source == 'calls' and cursor == '0' and call('HLEN', calls) == call('ZCARD', created_) then return '0', {}, {} end
  local page = call(source == 'calls' and 'HSCAN' or 'ZSCAN', prefix .. source, cursor, 'COUNT', most)
  local ids, members = {}, {}
  for i = 1, #page[2], 2 do
    ids[#ids + 1] = source == 'calls' and page[2][i] or page[2][i]:sub(TIME + 1)
    if source == 'created' then members[#ids] = page[2][i] end
  end
  return page[1], ids, members
end

local following, ids, members = next_page()
for i, id in ipairs(ids) do
  local run = load_run(id, true)
  local exists = run or call('EXISTS', runs .. id) == 1
  if exists and not (run and file(id, run)) then
    altered[#altered + 1] = id
  elseif members[i] and (not exists or run.created .. id ~= members[i]) then
    call('ZREM', created_, members[i])
    mend()
  end
end

for lane in pairs(busy) do
  call('HSETNX', totals, PENDING .. ':' .. lane, call('ZCARD', waiting .. lane) + call('ZCARD', delayed .. lane))
end
if args[4] then
  -- A claim looks only into lanes whose total says that runs wait there.
  local all = call('HGETALL', totals)
  for i = 1, #all, 2 do
    local status, lane = all[i]:match('^(%a+):(.*)$')
    local number_ = tonumber(all[i + 1])
    if status == PENDING then
      call('HSET', totals, all[i], call('ZCARD', waiting .. lane) + call('ZCARD', delayed .. lane))
    elseif not number_ or number_ < 0 or number_ > 2 ^ 52 or number_ % 1 ~= 0 then
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
return { following, altered, mended }
