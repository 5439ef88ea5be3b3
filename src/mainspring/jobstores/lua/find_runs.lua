-- uses: read
-- find_runs: matching runs by (created at, id), newest first.
--   KEYS  prefix, jobs, times (see lib_base); reads lanes, heads, leases, calls, states, lives and the indexes
--         by_status, by_job, by_group
--   ARGV  statuses, lane, group, job id (each false: any); limit; created at and id of the run after which to go on
--         (or false); how many to look at; whether to count only
-- Answers how many match, the created at (text) and id after which to go on looking (or nil), and the matching runs
-- (see lib_read), none if they are only counted.
local statuses, lane, group, job = args[1], args[2], args[3], args[4]
local limit, after_at, after_id, most, counting = args[5], args[6], args[7], args[8], args[9]
local STATUS, QUEUE, JOB, GROUP = 1, 6, 13, 15
local wanted = {}
for _, status in ipairs(statuses) do wanted[status] = true end

-- The rank, newest first, at which an index goes on after the given run, whether or not the run is still in it.
local function rank_after(key)
  if not after_at then return 0 end
  local score = redis.call('ZSCORE', key, after_id)
  if score and tonumber(score) == after_at then return redis.call('ZREVRANK', key, after_id) + 1 end
  redis.call('ZADD', key, after_at, after_id)
  local rank = redis.call('ZREVRANK', key, after_id)
  if score then
    redis.call('ZADD', key, score, after_id)
    -- Put back, it may have moved to either side of the gap that it leaves.
    return tonumber(score) > after_at and rank + 1 or rank
  end
  redis.call('ZREM', key, after_id)
  return rank
end

local function page(key, rank, size)
  return redis.call('ZREVRANGE', key, rank, rank + size - 1, 'WITHSCORES')
end

local function answer(ids, last_at, last_id)
  return { #ids, last_at or false, last_id or false, run_rows(counting and {} or ids) }
end

-- A job's or a group's runs are looked through one by one.
local function look_through(key)
  local items, ids = page(key, rank_after(key), most), {}
  local seen = {}
  for i = 1, #items, 2 do seen[#seen + 1] = items[i] end
  local packed = many('HMGET', heads, seen)
  for i, id in ipairs(seen) do
    local head = unpacked(packed[i], HEAD_SIZE)
    if head and wanted[head[STATUS]] and (not lane or head[QUEUE] == lane) and (not group or head[GROUP] == group)
      and (not job or head[JOB] == job) then
      ids[#ids + 1] = id
      if #ids >= limit and not counting then return answer(ids) end
    end
  end
  if #seen < most then return answer(ids) end
  return answer(ids, items[#items], seen[#seen])
end

if job or group then
  local key = job and by_job .. job or by_group .. group
  if job and group and redis.call('ZCARD', by_group .. group) < redis.call('ZCARD', key) then
    key = by_group .. group
  end
  return look_through(key)
end

-- Text compared as bytes: `<` would follow the server's locale.
local function greater(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = a:byte(i), b:byte(i)
    if x ~= y then return x > y end
  end
  return #a > #b
end

local names = lane and { lane } or redis.call('SMEMBERS', lanes)
if counting then
  local total = 0
  for _, name in ipairs(names) do
    for _, status in ipairs(statuses) do
      total = total + redis.call('ZCARD', by_status .. status .. ':' .. name)
    end
  end
  return { total, false, false, run_rows({}) }
end
local matches = {}
for _, name in ipairs(names) do
  for _, status in ipairs(statuses) do
    local key = by_status .. status .. ':' .. name
    local items = page(key, rank_after(key), limit)
    for i = 1, #items, 2 do matches[#matches + 1] = { items[i], tonumber(items[i + 1]) } end
  end
end
table.sort(matches, function(a, b)
  if a[2] ~= b[2] then return a[2] > b[2] end
  return greater(a[1], b[1])
end)
local ids = {}
for i = 1, math.min(limit, #matches) do ids[i] = matches[i][1] end
return answer(ids)
