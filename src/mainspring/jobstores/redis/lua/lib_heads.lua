-- lib_heads: what scripts look at in a run.
-- A head is a MessagePack array that Python writes and reads as one; its first fields have a fixed width, so that a
-- script can change a run by cutting and joining, which takes a fifth of the time of unpacking and packing it:
--   1-3  array of 20    4  status (0 pending, 1 running, 2 succeeded, 3 failed, 4 cancelled, 5 missed, 6 broken)
--   5-9  attempt       10  to be stopped       11  state is in `states`       12-16, 17-21  where B and C begin
--   A    never changes: owner, job id, group, creation time (18 digits, see lib_base)
--   B    changes when the run is settled: unique key, queue, how long it is kept, priority, run time, finish time, state
--   C    changes with its status: token, node, place (in its queue; when it was claimed, while it runs and if it was not
--        fired as running; of an ended run the number of its set `e:`)
local heads = prefix .. 'heads'
local MAGIC, NIL, UINT = '\220\0\20', '\192', '\206'
local PENDING, RUNNING, SUCCEEDED, CANCELLED, BROKEN = 0, 1, 2, 4, 6
local A = 22
local byte, sub = string.byte, string.sub

-- The last field of a head.
local function place_text(place) return place and '\217' .. string.char(#place) .. place or NIL end

-- Where B and C begin; nothing if it is no head: one damaged record must not stop the others.
local function blocks(head)
  if #head < A or sub(head, 1, 3) ~= MAGIC then return end
  local b, c = struct.unpack('>I4xI4', head, 13)
  if b < A or c < b or c > #head then return end
  return b, c
end

local unpack_limit = cmsgpack.unpack_limit

local function read_fields(head, b, c)
  local _, owner, job, group, created = unpack_limit(head, 4, A - 1)
  local _, unique, queue, keep = unpack_limit(head, 3, b - 1)
  local _, token, _, place = unpack_limit(head, 3, c - 1)
  return type(queue) == 'string' and type(created) == 'string' and {
    head = head, b = b, c = c, status = byte(head, 4), owner = owner, job = job, group = group, created = created,
    unique = unique, queue = queue, keep = keep, token = token, place = place,
  }
end

-- All that a script may want to know of a head as a table; false if it cannot be read.
local function parsed(head)
  if not head then return false end
  local b, c = blocks(head)
  if not b then return false end
  local ok, run = pcall(read_fields, head, b, c)
  return ok and run
end
