-- lib/read: the form in which scripts answer runs.
-- Six arrays: ids; fields (for each run an array with a value or nil for each of FIELDS, or nil if there is no such
-- run); calls; leases; long states; lives. Each of the last three is empty if no run has such a value.
local FIELDS = { 'q', 'a', 'm', 'd', 'more', 'job', 'incarnation', 'group', 'unique', 'cancelling', 'w', 'f', 'x', 'g', 'n',
  's', 'k', 'h' }
local STATE_, UNIQUE_, REFUSED_, GATE_, SPEC_, RARE_, STATUS_, TOKEN_ = 4, 9, 13, 14, 15, 15, 16, 17

local function rows(ids, found, leases)
  local long = false
  for i = 1, #ids do
    if found[i] and found[i][STATE_] == '>' then long = true end
  end
  return {
    ids,
    found,
    many('HMGET', prefix .. 'calls', ids),
    leases,
    long and many('HMGET', prefix .. 'states', ids) or {},
    #ids > 0 and call('EXISTS', prefix .. 'lives') == 1 and many('HMGET', prefix .. 'lives', ids) or {},
  }
end

-- Runs by id.
local function run_rows(ids)
  local found, places, running, tokens, leases = {}, {}, {}, {}, {}
  for i, id in ipairs(ids) do
    local fields = call('HMGET', runs .. id, unpack(FIELDS))
    local status, token = fields[STATUS_], fields[TOKEN_]
    found[i] = (status or call('EXISTS', runs .. id) == 1) and fields
    if status == 'running' and token then
      places[#places + 1], running[#running + 1], tokens[#tokens + 1] = i, id, token
    end
  end
  if #places > 0 then
    for i = 1, #ids do leases[i] = false end
    local own, shared = many('ZMSCORE', prefix .. 'extended', running), many('ZMSCORE', prefix .. 'leases', tokens)
    for n, i in ipairs(places) do leases[i] = own[n] or shared[n] end
  end
  return rows(ids, found, leases)
end
