-- lib/queues: find the pending runs in the lanes of queues. Times here are texts, in the form of a place.
local RIPENED = 2000 -- at once: a few milliseconds of the server's time
local waiting, delayed, totals = prefix .. 'w:', prefix .. 'd:', prefix .. 'totals'
local present = '1' .. ('00000000000000000' .. moment):sub(-17)

local function run_at_of(member) return member and member:sub(7, 24) end

-- Move up to `most` delayed runs of a lane that are due now to the waiting ones; answer when the next delayed run can be
-- claimed, nil if there is none.
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

-- How many more runs may start, by queue, for the queues with a limit: it holds over all lanes of a queue.
local function room_in(queues)
  local room = {}
  for i, limit in ipairs(many('HMGET', prefix .. 'limits', queues)) do
    if limit then
      local run = 'running:' .. queues[i]
      room[queues[i]] = tonumber(limit) or 0
      for _, number in ipairs(call('HMGET', totals, run, run .. ':async', run .. ':process')) do
        room[queues[i]] = room[queues[i]] - (tonumber(number) or 0)
      end
    end
  end
  return room
end

-- The given lanes that have pending runs and whose queue is below its limit, each once; when the first run of them that
-- is not due can be claimed (false: there is none); the numbers of pending and of running runs, by lane; and how many
-- more runs may start, by queue.
local function open_lanes(names)
  local all, owners, open, fields, pending, running, later = {}, {}, {}, {}, {}, {}, false
  for _, lane in ipairs(names) do
    if not pending[lane] then
      pending[lane] = 0
      all[#all + 1], owners[#all + 1] = lane, queue_of(lane)
      fields[2 * #all - 1], fields[2 * #all] = 'pending:' .. lane, 'running:' .. lane
    end
  end
  local room, counts = room_in(owners), many('HMGET', totals, fields)
  for i, lane in ipairs(all) do
    pending[lane], running[lane] = tonumber(counts[2 * i - 1]) or 0, tonumber(counts[2 * i]) or 0
    if pending[lane] > 0 and (room[owners[i]] or 1) > 0 then open[#open + 1] = lane end
  end
  local most = math.ceil(RIPENED / #open)
  for _, lane in ipairs(open) do
    local at = ripen(lane, most)
    if at and (not later or at < later) then later = at end
  end
  return open, later, pending, running, room
end

-- The lanes that a want names; all lanes if there is only one want.
local function wanted_of(open, wants, want)
  if #wants == 1 then return open end
  local is_wanted, some = {}, {}
  for _, lane in ipairs(want[1]) do is_wanted[lane] = true end
  for _, lane in ipairs(open) do
    if is_wanted[lane] then some[#some + 1] = lane end
  end
  return some
end

-- All lanes of some wants.
local function lanes_of(wants)
  if #wants == 1 then return wants[1][1] end
  local all = {}
  for _, want in ipairs(wants) do
    for _, lane in ipairs(want[1]) do all[#all + 1] = lane end
  end
  return all
end

-- Place and id of the most urgent due runs of some lanes, the lane of each, and whether there are more.
local function most_urgent(open, limit, room)
  local page, members, lane_of = math.max(1, math.ceil(limit / #open)), {}, {}
  local left = {} -- by queue: how many more of its runs may be taken, if it has a limit
  local heap, size = {}, 0 -- of lanes, the one with the most urgent run at its root

  -- No two places are the same, and all are digits, so that the server's locale does not matter.
  local function sift(i)
    local source = heap[i]
    while 2 * i <= size do
      local child = 2 * i
      if child < size and heap[child + 1].first < heap[child].first then child = child + 1 end
      if source.first < heap[child].first then break end
      heap[i] = heap[child]
      i = child
    end
    heap[i] = source
  end

  local function look(source, from)
    source.members, source.from, source.at = call('ZRANGE', waiting .. source.lane, from, from + page - 1), from, 1
    source.first = source.members[1]
  end

  local function drop()
    heap[1], heap[size] = heap[size], nil
    size = size - 1
    if size > 0 then sift(1) end
  end

  local function advance(source)
    source.at = source.at + 1
    source.first = source.members[source.at]
    if not source.first and #source.members == page then look(source, source.from + page) end
    if source.first then sift(1) else drop() end
  end

  for _, lane in ipairs(open) do
    local source = { lane = lane, queue = queue_of(lane) }
    left[source.queue] = room[source.queue]
    look(source, 0)
    if source.first then
      size = size + 1
      heap[size] = source
    end
  end
  for i = math.floor(size / 2), 1, -1 do sift(i) end
  while size > 0 and #members < limit do
    local source, number = heap[1], #members + 1
    local free = left[source.queue]
    if free and free <= 0 then
      drop()
    else
      members[number], lane_of[number] = source.first, source.lane
      left[source.queue] = free and free - 1
      advance(source)
    end
  end
  while size > 0 and (left[heap[1].queue] or 1) <= 0 do drop() end
  return members, lane_of, size > 0
end
