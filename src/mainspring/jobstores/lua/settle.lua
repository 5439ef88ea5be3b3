-- uses: write runs
-- settle: write each outcome whose condition holds for the stored run, with what follows from it.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes all that runs have, and outbox
--   ARGV  {run id, number of its call among ARGV, head, condition, lease until, followers, followers for other shards}
--         of each outcome, a follower being {run id, number of its call among ARGV, head}; then call (not used for the
--         outcome's own run), state and live ('' leaves what is there) of each run
-- Answers for each 1 written, 0 refused, 2 no such run.
local outcomes, answers = args[1], {}
local ids, followers = {}, {}
for i, outcome in ipairs(outcomes) do
  ids[i] = outcome[1]
  followers[#followers + 1] = outcome -- for its unique key
  for _, run in ipairs(outcome[6]) do followers[#followers + 1] = run end
end
read(ids)
read_for_insert(followers)

local function holds(condition, old, head, id)
  if old[TOKEN] ~= head[TOKEN] then return false end
  local status = old[STATUS]
  if condition == 'held' then return status == 'running' end
  if condition == 'waiting' then return status == 'pending' end
  if condition == 'finished' then return FINAL[status] or false end
  return status == 'running' and (tonumber(redis.call('ZSCORE', leases, id)) or 0) <= now
end

local function settle(outcome)
  local id, head = outcome[1], outcome[3]
  local old = found[id]
  if not old then return 2 end
  if not holds(outcome[4], old, head, id) then return 0 end
  local key = head[UNIQUE]
  if key and not FINAL[head[STATUS]] and holder[key] and holder[key] ~= id then return 0 end
  head[OWNER], head[CREATED], head[JOB], head[GROUP] = old[OWNER], old[CREATED], old[JOB], old[GROUP]
  replace(id, head, outcome[5])
  store_bytes(id, outcome[2])
  for _, run in ipairs(outcome[6]) do insert(run) end
  for _, run in ipairs(outcome[7]) do
    local n = run[2]
    hput(outbox, run[1], cmsgpack.pack({ now, run[3] }))
    hput(outbox_bytes, run[1], cmsgpack.pack({ ARGV[n], ARGV[n + 1], ARGV[n + 2] }))
  end
  return 1
end

for i, outcome in ipairs(outcomes) do answers[i] = settle(outcome) end
finish()
return answers
