-- lib_queues: what waits in the queues. Their times are texts, as places have them.
local RIPENED = 2000 -- at once: a few milliseconds of the server's time
local waiting, delayed, totals = prefix .. 'w:', prefix .. 'd:', prefix .. 'totals'
local present = '1' .. ('00000000000000000' .. moment):sub(-17)

local function run_at_of(member) return member and member:sub(7, 24) end

-- Move up to so many runs of a queue whose time has come to those that are due; answers when the next of the others can
-- be claimed, nil if there are none.
local function ripen(queue, most)
  local first = run_at_of(call('ZRANGE', delayed .. queue, '0', '0')[1])
  if not first or first > present then return first end
  local ripe, put = call('ZRANGEBYSCORE', delayed .. queue, '-inf', moment, 'LIMIT', 0, most), {}
  for i, member in ipairs(ripe) do
    put[2 * i - 1] = 0
    put[2 * i] = member
  end
  if #ripe == 0 then return first end
  many('ZADD', waiting .. queue, put)
  call('ZREMRANGEBYRANK', delayed .. queue, 0, #ripe - 1)
  return run_at_of(call('ZRANGE', delayed .. queue, 0, 0)[1])
end

-- The queues of these names that hold runs and are not at their limit, each once; by queue how many are pending, how many
-- run, and how many more may; and when the first of those that are not due can be claimed, false if there are none.
local function open_queues(names)
  local all, open, fields, pending, running, room, later = {}, {}, {}, {}, {}, {}, false
  for _, queue in ipairs(names) do
    if not pending[queue] then
      pending[queue] = 0
      all[#all + 1] = queue
      fields[2 * #all - 1], fields[2 * #all] = 'pending:' .. queue, 'running:' .. queue
    end
  end
  local limits, counts = many('HMGET', prefix .. 'limits', all), many('HMGET', totals, fields)
  for i, queue in ipairs(all) do
    pending[queue], running[queue] = tonumber(counts[2 * i - 1]) or 0, tonumber(counts[2 * i]) or 0
    if limits[i] then room[queue] = (tonumber(limits[i]) or 0) - running[queue] end
    if pending[queue] > 0 and (room[queue] or 1) > 0 then open[#open + 1] = queue end
  end
  local most = math.ceil(RIPENED / #open)
  for _, queue in ipairs(open) do
    local at = ripen(queue, most)
    if at and (not later or at < later) then later = at end
  end
  return open, later, pending, running, room
end

-- Place and id of the most urgent due runs of some queues, the queue of each, and whether there are more.
local function most_urgent(open, limit, room)
  local page, members, queue_of = math.max(1, math.ceil(limit / #open)), {}, {}
  local heap, size = {}, 0 -- of queues, the one with the most urgent run at its root

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
    source.members, source.from, source.at = call('ZRANGE', waiting .. source.queue, from, from + page - 1), from, 1
    source.first = source.members[1]
  end

  local function advance(source)
    source.at = source.at + 1
    source.first = source.members[source.at]
    source.left = source.left and source.left - 1
    if source.left and source.left <= 0 then
      source.first, source.members = nil, {}
    end
    if not source.first and #source.members == page then look(source, source.from + page) end
    if not source.first then
      heap[1], heap[size] = heap[size], nil
      size = size - 1
    end
    if size > 0 then sift(1) end
  end

  for _, queue in ipairs(open) do
    local source = { queue = queue, left = room[queue] }
    if (source.left or 1) > 0 then look(source, 0) end -- a claim may have filled the queue to its limit meanwhile
    if source.first then
      size = size + 1
      heap[size] = source
    end
  end
  for i = math.floor(size / 2), 1, -1 do sift(i) end
  while size > 0 and #members < limit do
    local source, number = heap[1], #members + 1
    members[number], queue_of[number] = source.first, source.queue
    advance(source)
  end
  return members, queue_of, size > 0
end
