-- lib/tools: functions that many scripts need; the loader puts this file after lib/base.
-- The queue of a lane: see core/lanes.py.
local function queue_of(lane)
  local first = lane:byte()
  if first == 46 or first == 33 or not lane:find(':', 1, true) then return lane end -- . and ! have one lane only
  return lane:match('^(.*):async$') or lane:match('^(.*):process$') or lane
end

-- Refuse a text that is not as wide as its place in a record: the texts after it would be misread.
local function check(text, width)
  if #text ~= width then error('the text ' .. text .. ' does not have the width ' .. width) end
end

-- The stack that unpack() fills is limited to about 8000 values.
local CHUNK = 4000

-- Call a command that takes any number of arguments, in pieces; answer all its answers.
local function many(command, key, list)
  local size = #list
  if size == 0 then return {} end
  if size <= CHUNK then return call(command, key, unpack(list)) end
  local all = {}
  for first = 1, size, CHUNK do
    local part = call(command, key, unpack(list, first, math.min(first + CHUNK - 1, size)))
    if type(part) == 'table' then
      for i = 1, #part do all[#all + 1] = part[i] end
    end
  end
  return all
end

-- Call a command that takes any number of keys, in pieces; answer the sum of its answers.
local function each(command, keys)
  local sum = 0
  for first = 1, #keys, CHUNK do
    sum = sum + call(command, unpack(keys, first, math.min(first + CHUNK - 1, #keys)))
  end
  return sum
end

-- A number as text; below 2^31, printing it as an integer is quicker, and safe on every platform.
local function whole(number) return string.format(number < 2147483648 and '%d' or '%.0f', number) end

-- Creation time (text), run time and priority out of the numbers of a run (see lib/runs), as far as they can be read.
local function numbers_of(text)
  local created, run_at, priority = (text or ''):match('^(%d+) (%-?%d+) (%-?%d+)')
  return created or '', tonumber(run_at) or now, tonumber(priority) or 0
end

-- The urgency of a run: see `_urgency` in wire.py.
local function urgency_of(priority, run_at)
  local first = 500000 - math.max(-499999, math.min(499999, priority))
  return string.format('%06d', first) .. '1' .. ('00000000000000000' .. whole(run_at)):sub(-17)
end

-- The next number under a name; a counter that somebody altered begins anew, above all its earlier numbers.
local function count_up(name, step)
  local number = redis.pcall('INCRBY', prefix .. name, step or 1)
  if type(number) == 'number' then return number end
  call('SET', prefix .. name, whole(math.floor(now / 1000)))
  return math.floor(now / 1000)
end

-- The next number that orders the runs in lanes and the ends of runs, as text of a fixed width.
local function next_in_sequence() return ('0000000000000' .. whole(count_up('sequence'))):sub(-14) end

-- Wake the loops that sleep on this shard, or with 'ends' the callers that wait for the end of a run.
local function tell(topic)
  topic = topic or 'wake'
  call('PUBLISH', prefix .. topic, whole(count_up(topic)))
end

-- Wake the loops for a change that concerns runs alone: see RUNS_STEP in jobstores/base.py.
local function tell_of_runs() call('PUBLISH', prefix .. 'wake', whole(count_up('wake', '4096'))) end
