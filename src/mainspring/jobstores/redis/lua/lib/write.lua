-- lib/write: collect changes and write them at the end, one command per key instead of one per change.
-- A flush removes members before it adds any, whatever their order was. So a script that changes a run for the second
-- time flushes first: then the later change counts.
local hdels, srems, zrems, hsets, zadds, sadds, sums = {}, {}, {}, {}, {}, {}, {}

-- Append to the changes of a kind for a key.
local function note(kind, key, first, second)
  local list = kind[key]
  if not list then
    list = { n = 0 }
    kind[key] = list
  end
  local size = list.n
  list[size + 1] = first
  if second == nil then
    list.n = size + 1
  else
    list[size + 2] = second
    list.n = size + 2
  end
end

-- Add to a number in a hash; delete it if it becomes 0 or less.
local function add(key, field, by)
  local fields = sums[key]
  if not fields then
    fields = {}
    sums[key] = fields
  end
  fields[field] = (fields[field] or 0) + by
end

local function flush_sums(key, fields)
  local names, put, drop = {}, {}, {}
  for field in pairs(fields) do
    names[#names + 1] = field
  end
  if #names == 1 then
    local sum = redis.pcall('HINCRBY', key, names[1], fields[names[1]])
    if type(sum) == 'number' then -- else somebody altered it
      if sum <= 0 then call('HDEL', key, names[1]) end
      return
    end
  end
  local before = many('HMGET', key, names)
  for i, field in ipairs(names) do
    local sum = math.floor(math.min(tonumber(before[i]) or 0, 2 ^ 52)) + fields[field]
    if sum > 0 then
      put[#put + 1], put[#put + 2] = field, whole(sum)
    elseif before[i] then
      drop[#drop + 1] = field
    end
  end
  many('HDEL', key, drop)
  many('HSET', key, put)
end

local function flush()
  for key, list in pairs(hdels) do many('HDEL', key, list) end
  for key, list in pairs(srems) do many('SREM', key, list) end
  for key, list in pairs(zrems) do many('ZREM', key, list) end
  for key, list in pairs(hsets) do many('HSET', key, list) end
  for key, list in pairs(zadds) do many('ZADD', key, list) end
  for key, list in pairs(sadds) do many('SADD', key, list) end
  for key, fields in pairs(sums) do flush_sums(key, fields) end
  hdels, srems, zrems, hsets, zadds, sadds, sums = {}, {}, {}, {}, {}, {}, {}
end
