-- uses: read
-- find_runs: find matching runs by (creation time, id), newest first, or count them.
--   KEYS  prefix, jobs, times (see lib/base); reads totals, leases, t:, w:, d:, f:, m: and all that
--         runs have
--   ARGV  statuses; the status whose index to use (or false); queue, group, job id (each false: any); limit; creation
--         time and id to continue after, in the form of an index (or false); how many runs to examine; whether to count
--         only; checksum of the job id; the run that they come after, the gate whose slot they need, the creation time
--         at which the search of an index ends (each false: any)
-- Answers how many match, the creation time and id to continue after (or nil), and the matching runs (see lib/read),
-- none if they are only counted.
local statuses, index, queue, group, job = args[1], args[2], args[3], args[4], args[5]
local limit, after, most, counting, sum, before = args[6], args[7], args[8], args[9], args[10], args[11]
local gate, since = args[12], args[13]
local wanted = {}
for _, status in ipairs(statuses) do wanted[status] = true end

-- The lanes of a queue, or of all queues, that have runs of a status, and the number of these runs.
local counts
local function lanes_with(status, name)
  local lanes, number = {}, 0
  counts = counts or call('HGETALL', prefix .. 'totals')
  for i = 1, #counts, 2 do
    local of, lane = counts[i]:match('^(%a+):(.*)$')
    if of == status and (not name or queue_of(lane) == name) then
      lanes[#lanes + 1] = lane
      number = number + (tonumber(counts[i + 1]) or 0)
    end
  end
  return lanes, number
end

-- How many runs there are, in a queue or in all.
local function total(name)
  local sum = 0
  for status in pairs(wanted) do
    local _, number = lanes_with(status, name)
    sum = sum + number
  end
  return sum
end

if counting and not job and not group and not before and not gate then return { total(queue), false, rows({}, {}, {}) } end

-- Whether a run matches. Read no more of it than is asked for: most of the runs that are looked at do not match.
local fields = { 's' }
if queue then fields[#fields + 1] = 'q' end
if group then fields[#fields + 1] = 'group' end
if job then fields[#fields + 1] = 'job' end
local function match(id)
  local run = call('HMGET', runs .. id, unpack(fields))
  local place = queue and 3 or 2
  return wanted[run[1]] and (not queue or queue_of(run[2] or '') == queue) and (not group or run[place] == group)
    and (not job or run[#fields] == job)
end

local function answer(ids, following)
  return { #ids, following or false, run_rows(counting and {} or ids) }
end

-- Text compared as bytes: `<` would follow the server's locale.
local function greater(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = a:byte(i), b:byte(i)
    if x ~= y then return x > y end
  end
  return #a > #b
end

-- Up to `number` members of an index behind a place, newest first.
local function newest(key, place, number)
  return call('ZREVRANGEBYLEX', key, place and '(' .. place or '+', since and '[' .. since or '-', 'LIMIT', 0, number)
end

-- The members with a job's score are in order, but no command finds a member among them: search by halves.
local function newest_of_job(key, place, number)
  local before, size = call('ZCOUNT', key, '(' .. sum, '+inf'), call('ZCOUNT', key, sum, sum)
  local low, high = 0, place and size or 0
  while low < high do
    local middle = math.floor((low + high) / 2)
    local member = call('ZREVRANGE', key, before + middle, before + middle)[1]
    if greater(place, member) then high = middle else low = middle + 1 end
  end
  if low >= size then return {} end
  return call('ZREVRANGE', key, before + low, before + math.min(size, low + number) - 1)
end

-- Look through an index. The first piece is as long as the page, which most often is all that is needed, and each
-- further one twice as long. Go on after the last one if there may be more.
local function look_through(members_of, key)
  local ids, looked, place, size = {}, 0, after, counting and most or limit
  while looked < most do
    size = math.min(size, most - looked)
    local members = members_of(key, place, size)
    for _, member in ipairs(members) do
      local id = member:sub(TIME + 1)
      if match(id) then
        ids[#ids + 1] = id
        if not counting and #ids >= limit then return answer(ids) end
      end
    end
    if #members < size then return answer(ids) end
    looked, place, size = looked + size, members[size], size * 2
  end
  return answer(ids, place)
end

-- The newest matching runs among a few ids; nil if there are fewer ids than there must be.
local function look_at(all, expected)
  local seen, members, ids, matching = {}, {}, {}, 0
  for _, id in ipairs(all) do
    local created = not seen[id] and match(id) and (call('HGET', runs .. id, 'm') or ''):match('^%d+')
    if created then matching = matching + 1 end
    if created and (not after or greater(after, created .. id)) then members[#members + 1] = created .. id end
    seen[id] = true
  end
  if expected and matching < expected then return nil end
  table.sort(members, greater)
  for i = 1, math.min(limit or #members, #members) do ids[i] = members[i]:sub(TIME + 1) end
  return answer(ids)
end

-- Unfinished runs where they are, without a look at all that have ended: those that wait in their lanes, those that run by
-- their leases, and behind these those that wait for them or for a slot of their gate. Answers nil if there are many, or
-- if some were not found.
local function look_at_unfinished(expected)
  local all, known, gates, seen = {}, {}, {}, 0
  local function add(members, from)
    for _, member in ipairs(members) do
      local id = member:sub(from)
      if not known[id] then all[#all + 1] = id end
      known[id] = true
    end
  end
  local _, blocked = lanes_with('blocked', queue)
  local _, running = lanes_with('running')
  local behind = wanted.blocked and blocked > 0
  local lanes, waiting = lanes_with('pending', not behind and queue)
  local leased, laned = wanted.running or behind, wanted.pending or behind
  if (laned and waiting or 0) + (leased and running or 0) + (behind and blocked or 0) > most then return nil end
  for _, lane in ipairs(laned and lanes or {}) do
    add(call('ZRANGE', prefix .. 'w:' .. lane, 0, -1), PLACE_SIZE + 1)
    add(call('ZRANGE', prefix .. 'd:' .. lane, 0, -1), PLACE_SIZE + 1)
  end
  if leased then
    add(call('ZRANGE', prefix .. 'extended', 0, -1), 1)
    for _, token in ipairs(call('ZRANGE', prefix .. 'leases', 0, -1)) do add(call('SMEMBERS', prefix .. 't:' .. token), 1) end
  end
  while behind and all[seen + 1] do
    seen = seen + 1
    local gate_ = call('HGET', runs .. all[seen], 'g')
    if gate_ and not gates[gate_] then add(call('SMEMBERS', prefix .. 'm:' .. gate_), 1) end
    if gate_ then gates[gate_] = true end
    add(call('HKEYS', prefix .. 'f:' .. all[seen]), 1)
  end
  return look_at(all, expected)
end

if before then return look_at(call('HKEYS', prefix .. 'f:' .. before)) end
if gate then return look_at(call('SMEMBERS', prefix .. 'm:' .. gate)) end

if job then return look_through(newest_of_job, prefix .. 'by_job') end
if group then return look_through(newest, prefix .. 'g:' .. group) end
if index then return look_through(newest, prefix .. 's:' .. index) end
local expected, unfinished = total(queue), true
for status in pairs(wanted) do
  unfinished = unfinished and (status == 'pending' or status == 'running' or status == 'blocked')
end
if expected == 0 then return answer({}) end
return unfinished and look_at_unfinished(expected) or look_through(newest, prefix .. 'created')
