-- uses: write runs edges lifecycle
-- prune: delete finished runs whose retention is over, then the oldest surplus runs for which the user chose no
-- retention. A run that a successor needs is kept for one more hour.
--   KEYS  prefix, jobs, times (see lib/base); writes all that runs have
--   ARGV  how many runs to delete at most, how many finished runs to keep
-- Answers how many runs were deleted.
local limit, kept = args[1], args[2]
local found, size, kept_longer = {}, 0, {}
local LONGER = 3600000000

-- Take up to `most` runs out of a set of runs that ended together; forget the set when it is empty.
local function take(set, most)
  local some = call('SPOP', together .. set, most)
  for _, id in ipairs(some) do
    local run = load_run(id, true)
    local is_here = run and FINAL[run.status] and run.place == set
    if is_here and (run.followed or 0) > 0 and is_needed(id) then
      kept_longer[#kept_longer + 1] = { id, is_chosen(set) and LONGER + 1 or LONGER }
    elseif is_here then
      run.place = nil -- it was taken out of its set
      found[id], size = run, size + 1
      if is_chosen(set) then add(prefix .. 'asked', 'runs', -1) end
    end
  end
  if #some < most or call('EXISTS', together .. set) == 0 then
    call('ZREM', ended, set)
    call('ZREM', expires, set)
  end
  return #some
end

local finished = -(tonumber(call('HGET', prefix .. 'asked', 'runs')) or 0)
local taken = 0
for _, set in ipairs(call('ZRANGEBYSCORE', expires, '-inf', moment, 'LIMIT', 0, limit)) do
  if taken >= limit then break end
  local at, keep = set:match('^(%d+)%+(%d+)$')
  if at and at + keep > now then -- only its place among those to be deleted was altered
    call('ZADD', expires, at + keep, set)
  else
    local number_ = take(set, limit - taken)
    taken = taken + number_
    if not is_chosen(set) then finished = finished - number_ end
  end
end

local all = call('HGETALL', totals)
for i = 1, #all, 2 do
  local status = all[i]:match('^(%a+):')
  if FINAL[status] and status ~= BROKEN then finished = finished + (tonumber(all[i + 1]) or 0) end
end
local excess = math.min(finished - kept, limit - taken)
while excess > 0 do
  local oldest = call('ZRANGE', ended, 0, 0)[1]
  if not oldest then break end
  excess = excess - take(oldest, excess)
end
for _, each_ in ipairs(kept_longer) do
  local set = moment .. '+' .. whole(each_[2])
  call('SADD', together .. set, each_[1])
  call('HSET', runs .. each_[1], 'p', set)
  call('ZADD', expires, now + each_[2], set)
  if not is_chosen(set) then call('ZADD', ended, moment, set) end
end
-- Forget the gates that no run needs; keep a rate until its next start is due.
for _, gate in ipairs(call('SRANDMEMBER', prefix .. 'gates', 100)) do
  local state = call('HMGET', prefix .. 'y:' .. gate, 'allowed', 'tat')
  if not state[1] and (tonumber(state[2]) or 0) <= now and call('EXISTS', prefix .. 'm:' .. gate) == 0 then
    call('DEL', prefix .. 'y:' .. gate)
    call('SREM', prefix .. 'gates', gate)
  end
end
delete(found)
return size
