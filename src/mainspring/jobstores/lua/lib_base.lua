-- lib_base: the keys of one shard and its clock; the loader puts it in front of every script.
--   KEYS  prefix  `{name:k}:`. Every key but the next two is this prefix and one of the names below, so that all keys
--                 of a shard share a hash slot. Where a name ends in a colon, text follows: a lane, a token, an id.
--         jobs    hash  job id -> frame
--         times   zset  job id -> next run time, of the jobs that are neither paused nor hidden
--   ARGV  1       MessagePack array of the script's plain arguments; absent values are false
--         2...    bytes that the script stores as they are
-- Numbers are whole and below 2^53, so Lua's doubles hold them; `..` and tostring() would not print them whole.
local prefix, jobs, times = KEYS[1], KEYS[2], KEYS[3]
local job_states = prefix .. 'job_states' -- hash  job id -> {version, incarnation (text), at, nominal, miss}
local hidden = prefix .. 'hidden'         -- zset  job id -> until when it is not handed out again
local versions = prefix .. 'versions'     -- text  the last version that was given
local unfinished = prefix .. 'unfinished' -- hash  `<job id>@<incarnation>` -> unfinished runs
local broken = prefix .. 'broken'         -- hash  version -> {job id, reason, when} of a job set aside
local broken_states = prefix .. 'broken_states' -- hash  version -> what job_states had
local broken_frames = prefix .. 'broken_frames' -- hash  version -> what jobs had
local heads = prefix .. 'heads'           -- hash  run id -> what scripts look at: see lib_runs
local calls = prefix .. 'calls'           -- hash  run id -> bytes
local states = prefix .. 'states'         -- hash  run id -> bytes
local lives = prefix .. 'lives'           -- hash  run id -> bytes that beats reported
local leases = prefix .. 'leases'         -- zset  running run id -> when its lease is over
local unique = prefix .. 'unique'         -- hash  unique key -> the unfinished run that holds it
local gone = prefix .. 'gone'             -- zset  id of a deleted run -> until when it is remembered
local ended = prefix .. 'ended'           -- zset  finished run id -> when that was written
local expires = prefix .. 'expires'       -- zset  finished run id -> until when it is kept
local lanes = prefix .. 'lanes'           -- set   lanes that have runs
local paused = prefix .. 'paused'         -- set   lanes that are paused
local counters = prefix .. 'counters'     -- hash  final status -> runs that ever reached it
local sequence = prefix .. 'sequence'     -- text  number of the last run that was put into a lane
local outbox = prefix .. 'outbox'         -- hash  id of a follow-up for another shard -> {when, head}
local outbox_bytes = prefix .. 'outbox_bytes' -- hash  id -> {call, state, live}
local nodes = prefix .. 'nodes'           -- hash  node id -> JSON
local node_beats = prefix .. 'node_beats' -- zset  node id -> when it was last heard of
local node_ends = prefix .. 'node_ends'   -- zset  node id -> until when it is listed
local meta = prefix .. 'meta'             -- hash  schema, shards
local shift = prefix .. 'shift'           -- text  microseconds by which a test has moved the clock
local wake = prefix .. 'wake'             -- text  number of wake-ups so far, and the pub/sub channel of that name
local by_status = prefix .. 'r:'          -- zset  `r:<status>:<lane>`: run id -> created at
local by_job = prefix .. 'j:'             -- zset  `j:<job id>`: run id -> created at
local by_group = prefix .. 'g:'           -- zset  `g:<group>`: run id -> created at
local waiting = prefix .. 'w:'            -- zset  `w:<lane>`: place and id of the runs that are due, all of score 0
local delayed = prefix .. 'd:'            -- zset  `d:<lane>`: place and id of the others -> run time
local held = prefix .. 't:'               -- set   `t:<token>`: the running runs claimed under it

local args = ARGV[1] and cmsgpack.unpack(ARGV[1])

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2] + (tonumber(redis.call('GET', shift)) or 0)

-- The stack that unpack() fills is limited to about 8000 values.
local CHUNK = 4000

-- Call a command that takes any number of arguments, in pieces; answer all that it answers.
local function many(command, key, list)
  local size = #list
  if size == 0 then return {} end
  if size <= CHUNK then return redis.call(command, key, unpack(list)) end
  local all = {}
  for first = 1, size, CHUNK do
    local part = redis.call(command, key, unpack(list, first, math.min(first + CHUNK - 1, size)))
    if type(part) == 'table' then
      for i = 1, #part do all[#all + 1] = part[i] end
    end
  end
  return all
end

-- An array of this size that a script packed; false if there is nothing, or nothing that can be read: one damaged record
-- must not stop the others.
local JOB_STATE_SIZE, HEAD_SIZE = 5, 16
local function unpacked(packed, size)
  if not packed then return false end
  local ok, value = pcall(cmsgpack.unpack, packed)
  return ok and type(value) == 'table' and #value == size and value
end

-- Wake the loops that sleep on this shard.
local function tell()
  redis.call('PUBLISH', wake, redis.call('INCR', wake))
end
