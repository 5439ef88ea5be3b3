-- lib_runs: where a run is filed, by its status. Needs lib_write.
-- A head is a MessagePack array of these; absent values are false. The lease is a score in `leases` only.
local STATUS, TOKEN, NODE, ATTEMPT, CANCELLING, QUEUE, PRIORITY, RUN_AT = 1, 2, 3, 4, 5, 6, 7, 8
local CREATED, FINISHED, KEEP, OWNER, JOB, UNIQUE, GROUP, PLACE = 9, 10, 11, 12, 13, 14, 15, 16
local PLACE_SIZE = 39
local REMEMBERED_FOR, REMEMBERED = 3600000000, 100000
local FINAL = { succeeded = true, failed = true, cancelled = true, missed = true, broken = true }

local found, damaged, remembered = {}, {}, {} -- by run id: head or false, whether it cannot be read, whether it is gone
local holder = {}                             -- by unique key: run id or false
local known_lanes, first_delayed = {}, {}
local number, stirred = nil, false

-- Look runs up, once each.
local function read(ids)
  local unread = {}
  for _, id in ipairs(ids) do
    if found[id] == nil then
      found[id] = false
      unread[#unread + 1] = id
    end
  end
  local packed = many('HMGET', heads, unread)
  for i, id in ipairs(unread) do
    found[id] = unpacked(packed[i], HEAD_SIZE)
    damaged[id] = packed[i] and not found[id]
  end
end

-- Look up what stands in the way of new runs ({id, number of its bytes, head} each): their ids and unique keys.
local function read_for_insert(runs)
  local ids, keys = {}, {}
  for i, run in ipairs(runs) do
    ids[i] = run[1]
    if run[3][UNIQUE] then keys[#keys + 1] = run[3][UNIQUE] end
  end
  read(ids)
  local until_ = many('ZMSCORE', gone, ids)
  for i, id in ipairs(ids) do
    remembered[id] = until_[i] and tonumber(until_[i]) > now or nil
  end
  local holders = many('HMGET', unique, keys)
  for i, key in ipairs(keys) do holder[key] = holders[i] end
end

local function keep(id, head)
  found[id] = head
  hput(heads, id, cmsgpack.pack(head))
end

local function put_into_lane(id, head)
  local lane = head[QUEUE]
  number = (number or tonumber(redis.call('GET', sequence)) or 0) + 1
  -- Digits of a fixed width, so that the order of the texts is that of (-priority, run time, number).
  local urgency = 500000 - math.max(-499999, math.min(499999, head[PRIORITY]))
  head[PLACE] = string.format('%06d%017.0f%016.0f', urgency, math.max(0, head[RUN_AT]), number)
  if known_lanes[lane] == nil then
    known_lanes[lane] = redis.call('SISMEMBER', paused, lane) == 1 and 'paused' or 'open'
    local first = redis.call('ZRANGE', delayed .. lane, 0, 0, 'WITHSCORES')
    first_delayed[lane] = first[2] and tonumber(first[2]) or math.huge
  end
  local open = known_lanes[lane] == 'open'
  if head[RUN_AT] <= now then
    zput(waiting .. lane, head[PLACE] .. id, 0)
    stirred = stirred or open
  else
    zput(delayed .. lane, head[PLACE] .. id, head[RUN_AT])
    stirred = stirred or open and head[RUN_AT] < first_delayed[lane]
  end
end

-- File a run under its status; one that runs is leased until `until_`.
local function file(id, head, until_)
  local status = head[STATUS]
  if status == 'pending' then
    put_into_lane(id, head)
  elseif status == 'running' then
    zput(leases, id, until_)
    sput(held .. head[TOKEN], id, true)
  else
    add(counters, status, 1)
    if status ~= 'broken' then -- never pruned
      zput(ended, id, now)
      zput(expires, id, now + head[KEEP])
    end
  end
  sput(lanes, head[QUEUE], true)
  zput(by_status .. status .. ':' .. head[QUEUE], id, head[CREATED])
  keep(id, head)
end

-- Take a run out of where its status has it.
local function unfile(id, head)
  local status = head[STATUS]
  if status == 'pending' then
    zput(waiting .. head[QUEUE], head[PLACE] .. id, false)
    zput(delayed .. head[QUEUE], head[PLACE] .. id, false)
  elseif status == 'running' then
    zput(leases, id, false)
    sput(held .. head[TOKEN], id, false)
  else
    zput(ended, id, false)
    zput(expires, id, false)
  end
  zput(by_status .. status .. ':' .. head[QUEUE], id, false)
end

local function store_bytes(id, first)
  hput(states, id, ARGV[first + 1])
  if ARGV[first + 2] ~= '' then hput(lives, id, ARGV[first + 2]) end
end

-- Add a run that is new: {id, number of its call among ARGV, followed by state and live, head}.
local function write_new(run, until_)
  local id, head = run[1], run[3]
  hput(calls, id, ARGV[run[2]])
  store_bytes(id, run[2])
  if head[JOB] then zput(by_job .. head[JOB], id, head[CREATED]) end
  if head[GROUP] then zput(by_group .. head[GROUP], id, head[CREATED]) end
  file(id, head, until_)
end

-- Add an unfinished run unless its id is known or its unique key is taken.
local function insert(run, until_)
  local id, head = run[1], run[3]
  if found[id] or damaged[id] or remembered[id] then return false end
  local key = head[UNIQUE]
  if key then
    if holder[key] and holder[key] ~= id then return false end
    holder[key] = id
    hput(unique, key, id)
  end
  if head[OWNER] then add(unfinished, head[OWNER], 1) end
  write_new(run, until_)
  return true
end

-- Replace a run's head, keeping the count of its job and its unique key right.
local function replace(id, head, until_)
  local old = found[id]
  unfile(id, old)
  local was, is = FINAL[old[STATUS]], FINAL[head[STATUS]]
  if old[OWNER] and was ~= is then add(unfinished, old[OWNER], was and 1 or -1) end
  if old[UNIQUE] and not was then
    holder[old[UNIQUE]] = false
    hput(unique, old[UNIQUE], false)
  end
  if head[UNIQUE] and not is then
    holder[head[UNIQUE]] = id
    hput(unique, head[UNIQUE], id)
  end
  file(id, head, until_)
end

-- Delete a finished run and remember its id.
local function delete(id, head)
  unfile(id, head)
  found[id] = false
  for _, key in ipairs({ heads, calls, states, lives }) do hput(key, id, false) end
  if head[JOB] then zput(by_job .. head[JOB], id, false) end
  if head[GROUP] then zput(by_group .. head[GROUP], id, false) end
  zput(gone, id, now + REMEMBERED_FOR)
end

local function forget_old_ids()
  redis.call('ZREMRANGEBYSCORE', gone, '-inf', string.format('%.0f', now))
  redis.call('ZREMRANGEBYRANK', gone, 0, -REMEMBERED - 1)
end

-- Write everything and wake who may want to know.
local function finish()
  flush()
  if number then redis.call('SET', sequence, string.format('%.0f', number)) end
  if stirred then tell() end
end
