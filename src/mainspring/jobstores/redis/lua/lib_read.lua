-- lib_read: runs as they are answered. Needs lib_heads.
-- Six arrays: ids, heads, calls, leases, big states, lives; each of the last three is empty if no run has any.
local function rows(ids, found, leases)
  local big = false
  for i = 1, #ids do
    if found[i] and byte(found[i], 11) == 195 then big = true end
  end
  return {
    ids,
    found,
    many('HMGET', prefix .. 'calls', ids),
    leases,
    big and many('HMGET', prefix .. 'states', ids) or {},
    #ids > 0 and call('EXISTS', prefix .. 'lives') == 1 and many('HMGET', prefix .. 'lives', ids) or {},
  }
end

-- Runs by id; what there is nothing of is false.
local function run_rows(ids)
  local found, places, running, tokens, leases = many('HMGET', heads, ids), {}, {}, {}, {}
  for i = 1, #ids do
    local run = found[i] and byte(found[i], 4) == RUNNING and parsed(found[i])
    if run and run.token then
      places[#places + 1], running[#running + 1], tokens[#tokens + 1] = i, ids[i], run.token
    end
  end
  if #places > 0 then
    for i = 1, #ids do leases[i] = false end
    local own, shared = many('ZMSCORE', prefix .. 'extended', running), many('ZMSCORE', prefix .. 'leases', tokens)
    for n, i in ipairs(places) do leases[i] = own[n] or shared[n] end
  end
  return rows(ids, found, leases)
end
