-- uses: jobs write runs
-- fire: take each step whose job is unchanged and due: next run time, new version, missed records, runs.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes job_states, hidden, versions and all that runs have
--   ARGV  lease in microseconds; {job id, version, next at, next nominal, miss, runs, missed} of each step; a run is
--         {id, number of its call among ARGV, head}; then call, state and live ('' if none) of each run
-- Answers a text for each step: '-' if it was lost, else '1' or '0' for each of its runs: inserted or known.
local until_, steps = now + args[1], args[2]
local ids, runs = {}, {}
for i, step in ipairs(steps) do
  ids[i] = step[1]
  for _, run in ipairs(step[6]) do runs[#runs + 1] = run end
end
local known, packed = {}, many('HMGET', job_states, ids)
for i, id in ipairs(ids) do known[id] = unpacked(packed[i], JOB_STATE_SIZE) end
read_for_insert(runs)

local version, taken = take_versions(0), 0

local function record_missed(run)
  local id, head = run[1], run[3]
  read({ id })
  local old = found[id]
  if not old then return write_new(run) end
  unfile(id, old)
  add(counters, head[STATUS], -1) -- the record is longer, not one more
  write_new(run)
end

local function take(step)
  local id, next_at = step[1], step[3]
  local state = known[id]
  if not state or state[VERSION] ~= step[2] or not state[AT] or state[AT] > now then return '-' end
  zput(hidden, id, false)
  zput(times, id, next_at)
  if next_at then
    taken = taken + 1
    state = { version + taken, state[INCARNATION], next_at, step[4], step[5] }
    known[id] = state
    hput(job_states, id, cmsgpack.pack(state))
  else
    known[id] = false
    hput(job_states, id, false)
    hput(jobs, id, false)
  end
  local answer = {}
  for i, run in ipairs(step[6]) do answer[i] = insert(run, until_) and '1' or '0' end
  for _, run in ipairs(step[7]) do record_missed(run) end
  return table.concat(answer)
end

local answers = {}
for i, step in ipairs(steps) do answers[i] = take(step) end
take_versions(taken)
-- Nobody is woken for the next run times: whoever fires a job looks again in time, and who leaves wakes the others.
finish()
return answers
