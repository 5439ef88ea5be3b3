-- uses: jobs write runs edges lifecycle
-- fire: write each step whose job is unchanged and due: next run time, new version, missed records, runs.
--   KEYS  prefix, jobs, times (see lib/base); reads and writes job_states, hidden, versions and all that runs have
--   ARGV  lease in microseconds; {job id, version, next at (text; false: remove the job), next at and nominal (in the
--         form of a state), runs, missed, open missed record, unscheduled (the job need not be due, nor is it removed),
--         frame (the job's new bytes; false: keep the old ones)} of each step, its runs in the form of lib/runs
-- Answers a text for each step: '-' if the step was lost, else for each of its runs '1' if the run was added, '2' if it
-- was added but not leased because its queue is paused or limited, '0' if it was not added.
local until_, steps = now + args[1], args[2]
local ids, new_runs = {}, {}
for i, step in ipairs(steps) do
  ids[i] = step[1]
  check(step[4], TIMES)
  for _, run in ipairs(step[5]) do new_runs[#new_runs + 1] = run end
end
local state_of, states_ = {}, many('HMGET', job_states, ids)
for i, id in ipairs(ids) do state_of[id] = sound(states_[i]) end
prepare(new_runs)

local version, taken, taken_before = take_versions(0), 0, {}
local told = false

-- The text of the next version. Numbers of this size take long to print, so their first digits are kept.
local high, high_text = nil, nil
local function next_version()
  local text = version + taken
  local upper = math.floor(text / 1000000)
  if upper ~= high then high, high_text = upper, string.format('%010.0f', upper) end
  return high_text .. string.format('%06d', text - upper * 1000000)
end

local function record_missed(run)
  local id = run[ID]
  local old = load_run(id, true)
  if old then -- the record is longer, not one more
    unfile(id, old)
    erase(id, old)
    add(prefix .. 'counters', old.status, -1)
  end
  write_new(run)
end

-- Make a run wait if its fire has claimed it in a paused or limited queue; answer whether it did. The queue of a local
-- executor begins with a dot and has no limit.
local function has_to_wait(run)
  if run[STATUS] ~= RUNNING or run[LANE]:sub(1, 1) == '.' or not any(prefix .. 'limits') then return false end
  if call('HEXISTS', prefix .. 'limits', queue_of(run[LANE])) == 0 then return false end
  local _, _, priority = numbers_of(run[NUMBERS])
  run[STATUS], run[URGENCY] = PENDING, urgency_of(tonumber(priority), tonumber(run[RUN_AT]))
  local given, left = run[MORE].fields, { 'a', '0' }
  for i = 1, #given, 2 do
    if given[i] ~= 'a' and given[i] ~= 'k' and given[i] ~= 'h' then
      left[#left + 1], left[#left + 2] = given[i], given[i + 1]
    end
  end
  run[MORE].fields = left
  return true
end

local function take(step)
  local id, next_at, unscheduled = step[1], step[3], step[8]
  local state = state_of[id]
  if not state or version_of(state) ~= step[2] then return '-' end
  local at = at_of(state)
  if not unscheduled and (not at or at > now) then return '-' end
  if taken_before[id] then write() end -- the same job twice in a batch
  taken_before[id] = true
  note(hdels, hidden, id)
  local answer, sum, incarnation = {}, unfinished_of(state), incarnation_of(state)
  for i, run in ipairs(step[5]) do
    local waits, more = has_to_wait(run), run[MORE]
    local counts = more and more.job == id and more.incarnation == incarnation
    if counts then more.incarnation = nil end -- counted here, and written with the state
    local new = insert(run, until_)
    answer[i] = not new and '0' or waits and '2' or '1'
    if new and counts then sum = sum + 1 end
  end
  for _, run in ipairs(step[6]) do record_missed(run) end
  if next_at or unscheduled then
    taken = taken + 1
    state = next_version() .. incarnation .. step[4] .. string.format('%09d', sum) .. step[7]
    state_of[id] = state
    note(hsets, job_states, id, state)
    if next_at then note(zadds, times, next_at, id) elseif at then note(zrems, times, id) end
    if step[9] then
      note(hsets, jobs, id, step[9])
      local first = next_at and earliest()
      told = told or next_at and (not first or tonumber(next_at) < first)
    end
  else
    state_of[id] = false
    note(hdels, job_states, id)
    note(hdels, jobs, id)
    note(zrems, times, id)
  end
  return table.concat(answer)
end

local answers = {}
for i, step in ipairs(steps) do answers[i] = take(step) end
take_versions(taken)
-- A next run time wakes nobody: the scheduler that fires a job looks again in time, and one that leaves wakes the
-- others. A job that was replaced may be due earlier than they expect.
finish()
if told then tell() end
return answers
