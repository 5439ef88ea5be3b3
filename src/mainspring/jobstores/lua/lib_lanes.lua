-- lib_lanes: what waits in the lanes.
-- Move the runs of a lane whose time has come to those that are due.
local function ripen(lane)
  local ripe = call('ZRANGEBYSCORE', prefix .. 'd:' .. lane, '-inf', moment)
  if #ripe == 0 then return end
  local put = {}
  for i, member in ipairs(ripe) do
    put[2 * i - 1] = 0
    put[2 * i] = member
  end
  many('ZADD', prefix .. 'w:' .. lane, put)
  many('ZREM', prefix .. 'd:' .. lane, ripe)
end

-- The lanes of these names that are not paused, each once.
local function open_lanes(names)
  local open, seen = {}, {}
  for _, lane in ipairs(names) do
    if not seen[lane] and call('SISMEMBER', prefix .. 'paused', lane) == 0 then
      open[#open + 1] = lane
      ripen(lane)
    end
    seen[lane] = true
  end
  return open
end

-- Place and id of the most urgent due runs of several lanes, and the lane of each, or of all if it is but one.
local function most_urgent(open, limit)
  local members, lane_of, queues = {}, {}, {}
  if limit == 0 then return members, lane_of end
  for _, lane in ipairs(open) do
    local first = call('ZRANGE', prefix .. 'w:' .. lane, 0, limit - 1)
    if #first > 0 then queues[#queues + 1] = { lane = lane, members = first, at = 1 } end
  end
  if #queues == 1 then return queues[1].members, queues[1].lane end
  for i = 1, limit do
    local best, most = nil, nil
    for _, queue in ipairs(queues) do
      local member = queue.members[queue.at]
      -- No two places are the same, and all are digits, so that the server's locale does not matter.
      if member and (not most or member < most) then best, most = queue, member end
    end
    if not best then break end
    members[i], lane_of[most], best.at = most, best.lane, best.at + 1
  end
  return members, lane_of
end

-- When a waiting run of the lanes can be claimed: now, if one is due; false if none waits.
local function next_run_at(open)
  local next_at = false
  for _, lane in ipairs(open) do
    if call('EXISTS', prefix .. 'w:' .. lane) == 1 then return now end
    local first = call('ZRANGE', prefix .. 'd:' .. lane, 0, 0, 'WITHSCORES')[2]
    if first and (not next_at or tonumber(first) < next_at) then next_at = tonumber(first) end
  end
  return next_at
end
