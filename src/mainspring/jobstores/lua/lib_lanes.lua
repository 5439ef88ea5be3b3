-- lib_lanes: what waits in the lanes. Needs lib_runs.
-- Move the runs of a lane whose time has come to those that are due.
local function ripen(lane)
  local ripe = redis.call('ZRANGEBYSCORE', delayed .. lane, '-inf', string.format('%.0f', now))
  if #ripe == 0 then return end
  local put = {}
  for _, member in ipairs(ripe) do
    put[#put + 1] = 0
    put[#put + 1] = member
  end
  many('ZADD', waiting .. lane, put)
  many('ZREM', delayed .. lane, ripe)
end

-- The lanes of these names that are not paused, each once.
local function open_lanes(names)
  local open, seen = {}, {}
  for _, lane in ipairs(names) do
    if not seen[lane] and redis.call('SISMEMBER', paused, lane) == 0 then
      open[#open + 1] = lane
      ripen(lane)
    end
    seen[lane] = true
  end
  return open
end

-- Place and id of the most urgent due runs of several lanes.
local function most_urgent(open, limit)
  local members = {}
  if limit == 0 then return members end
  for _, lane in ipairs(open) do
    for _, member in ipairs(redis.call('ZRANGE', waiting .. lane, 0, limit - 1)) do members[#members + 1] = member end
  end
  if #open > 1 then
    table.sort(members, function(a, b) return a:sub(1, PLACE_SIZE) < b:sub(1, PLACE_SIZE) end)
    for i = #members, limit + 1, -1 do members[i] = nil end
  end
  return members
end

-- When a waiting run of the lanes can be claimed: now, if one is due; false if none waits.
local function next_run_at(open)
  local next_at = false
  for _, lane in ipairs(open) do
    if redis.call('EXISTS', waiting .. lane) == 1 then return now end
    local first = redis.call('ZRANGE', delayed .. lane, 0, 0, 'WITHSCORES')[2]
    if first and (not next_at or tonumber(first) < next_at) then next_at = tonumber(first) end
  end
  return next_at
end

-- Read the runs of these members; those whose head is gone or damaged leave their lane. Answers the ids of the others.
local function take_out_unreadable(names, members)
  local all, readable = {}, {}
  for i, member in ipairs(members) do all[i] = member:sub(PLACE_SIZE + 1) end
  read(all)
  for i, id in ipairs(all) do
    if found[id] then
      readable[#readable + 1] = id
    else
      for _, lane in ipairs(names) do
        redis.call('ZREM', waiting .. lane, members[i])
        redis.call('ZREM', delayed .. lane, members[i])
      end
    end
  end
  return readable
end
