-- lib_write: collect changes and write them at the end, one command per key instead of one per change.
-- The last word about a member counts, so a run that moves twice within a batch ends up where it was put last.
local hashes, zsets, sets, sums = {}, {}, {}, {}

local function change(kind, key, member, value)
  local members = kind[key]
  if not members then
    members = {}
    kind[key] = members
  end
  members[member] = value
end

-- Set a field of a hash, or delete it (false).
local function hput(key, field, value) change(hashes, key, field, value) end

-- Set the score of a member, or take it out (false).
local function zput(key, member, score) change(zsets, key, member, score) end

-- Put a member into a set (true), or take it out (false).
local function sput(key, member, present) change(sets, key, member, present) end

-- Add to a number in a hash; one that comes down to nothing is deleted.
local function add(key, field, by)
  local fields = sums[key]
  if not fields then
    fields = {}
    sums[key] = fields
  end
  fields[field] = (fields[field] or 0) + by
end

local function flush()
  for key, fields in pairs(hashes) do
    local put, drop = {}, {}
    for field, value in pairs(fields) do
      if value then
        put[#put + 1] = field
        put[#put + 1] = value
      else
        drop[#drop + 1] = field
      end
    end
    many('HDEL', key, drop)
    many('HSET', key, put)
  end
  for key, members in pairs(zsets) do
    local put, drop = {}, {}
    for member, score in pairs(members) do
      if score then
        put[#put + 1] = score
        put[#put + 1] = member
      else
        drop[#drop + 1] = member
      end
    end
    many('ZREM', key, drop)
    many('ZADD', key, put)
  end
  for key, members in pairs(sets) do
    local put, drop = {}, {}
    for member, present in pairs(members) do
      if present then put[#put + 1] = member else drop[#drop + 1] = member end
    end
    many('SREM', key, drop)
    many('SADD', key, put)
  end
  for key, fields in pairs(sums) do
    local names, put, drop = {}, {}, {}
    for field, by in pairs(fields) do
      if by ~= 0 then names[#names + 1] = field end
    end
    local before = many('HMGET', key, names)
    for i, field in ipairs(names) do
      local sum = (tonumber(before[i]) or 0) + fields[field]
      if sum > 0 then
        put[#put + 1] = field
        put[#put + 1] = sum
      else
        drop[#drop + 1] = field
      end
    end
    many('HDEL', key, drop)
    many('HSET', key, put)
  end
end
