-- uses: write runs edges lifecycle
-- add_runs: add new runs; a run whose predecessors have not all ended is added as blocked.
--   KEYS  prefix, jobs, times (see lib/base); reads and writes all that runs have
--   ARGV  runs (see lib/runs)
-- Answers two arrays. The first has an id for each run: its own, that of the unfinished run with its unique key, or nil
-- if it should come after a run that does not exist; the array is empty if every run has its own id. The second has the
-- ids of the runs that are refused. If too many runs would come after one run, adds nothing and answers only the id of
-- that run.
local MOST_EDGES = 1000
local answers, own, refused = {}, true, {}

-- Return the run that too many runs would come after.
local function overfull()
  local more = {}
  for _, run in ipairs(args[1]) do
    local after = run[MORE] and run[MORE].after or NO_MORE
    for i = 1, #after, 2 do more[after[i]] = (more[after[i]] or 0) + (known[run[ID]] and 0 or 1) end
  end
  for id, number_ in pairs(more) do
    if number_ > 0 and (tonumber(call('HGET', runs .. id, 'f')) or 0) + number_ > MOST_EDGES then return id end
  end
end

prepare(args[1])
local full = overfull()
if full then return { full } end
for i, run in ipairs(args[1]) do
  local id, key = run[ID], run[MORE] and run[MORE].unique
  local new, by = insert(run)
  answers[i] = new ~= nil and id
  if new == false and key and call('EXISTS', runs .. id) == 0 then
    answers[i] = call('HGET', unique, key) or id
  end
  if by then refused[#refused + 1] = id end
  own = own and answers[i] == id
end
finish()
return { own and {} or answers, refused }
