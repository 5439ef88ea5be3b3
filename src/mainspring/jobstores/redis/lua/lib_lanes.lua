-- lib_lanes: what waits in the lanes. Their times are texts, as places have them.
local RIPENED = 2000 -- at once: a few milliseconds of the server's time
local waiting, delayed, totals = prefix .. 'w:', prefix .. 'd:', prefix .. 'totals'
local present = '1' .. ('00000000000000000' .. moment):sub(-17)

local function run_at_of(member) return member and member:sub(7, 24) end

-- Move up to so many runs of a lane whose time has come to those that are due; answers when the next of the others can
-- be claimed, nil if there are none.
local function ripen(lane, most)
  local first = run_at_of(call('ZRANGE', delayed .. lane, '0', '0')[1])
  if not first or first > present then return first end
  local ripe, put = call('ZRANGEBYSCORE', delayed .. lane, '-inf', moment, 'LIMIT', 0, most), {}
  for i, member in ipairs(ripe) do
    put[2 * i - 1] = 0
    put[2 * i] = member
  end
  if #ripe == 0 then return first end
  many('ZADD', waiting .. lane, put)
  call('ZREMRANGEBYRANK', delayed .. lane, 0, #ripe - 1)
  return run_at_of(call('ZRANGE', delayed .. lane, 0, 0)[1])
end

-- The lanes of these names that are not paused and hold runs, each once; by lane how many are pending and running; and
-- when the first of those that are not due can be claimed, false if there are none.
local function open_lanes(names)
  local all, open, fields, pending, running, later = {}, {}, {}, {}, {}, false
  for _, lane in ipairs(names) do
    if not pending[lane] then
      pending[lane] = 0
      all[#all + 1] = lane
      fields[2 * #all - 1], fields[2 * #all] = '0' .. lane, '1' .. lane
    end
  end
  local paused, counts = many('SMISMEMBER', prefix .. 'paused', all), many('HMGET', totals, fields)
  for i, lane in ipairs(all) do
    pending[lane], running[lane] = tonumber(counts[2 * i - 1]) or 0, tonumber(counts[2 * i]) or 0
    if paused[i] == 0 and pending[lane] > 0 then open[#open + 1] = lane end
  end
  local most = math.ceil(RIPENED / #open)
  for _, lane in ipairs(open) do
    local at = ripen(lane, most)
    if at and (not later or at < later) then later = at end
  end
  return open, later, pending, running
end

-- Place and id of the most urgent due runs of some lanes, the lane of each, and whether there are more.
local function most_urgent(open, limit)
  local page, members, lane_of = math.max(1, math.ceil(limit / #open)), {}, {}
  local heap, size = {}, 0 -- of lanes, the one with the most urgent run at its root

  -- No two places are the same, and all are digits, so that the server's locale does not matter.
  local function sift(i)
    local queue = heap[i]
    while 2 * i <= size do
      local child = 2 * i
      if child < size and heap[child + 1].first < heap[child].first then child = child + 1 end
      if queue.first < heap[child].first then break end
      heap[i] = heap[child]
      i = child
    end
    heap[i] = queue
  end

  local function look(queue, from)
    queue.members, queue.from, queue.at = call('ZRANGE', waiting .. queue.lane, from, from + page - 1), from, 1
    queue.first = queue.members[1]
  end

  local function advance(queue)
    queue.at = queue.at + 1
    queue.first = queue.members[queue.at]
    if not queue.first and #queue.members == page then look(queue, queue.from + page) end
    if not queue.first then
      heap[1], heap[size] = heap[size], nil
      size = size - 1
    end
    if size > 0 then sift(1) end
  end

  for _, lane in ipairs(open) do
    local queue = { lane = lane }
    look(queue, 0)
    if queue.first then
      size = size + 1
      heap[size] = queue
    end
  end
  for i = math.floor(size / 2), 1, -1 do sift(i) end
  while size > 0 and #members < limit do
    local queue, number = heap[1], #members + 1
    members[number], lane_of[number] = queue.first, queue.lane
    advance(queue)
  end
  return members, lane_of, size > 0
end
