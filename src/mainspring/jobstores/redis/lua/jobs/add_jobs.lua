-- uses: jobs write
-- add_jobs: write jobs, all or none.
--   KEYS  prefix, jobs, times (see lib/base); reads and writes job_states, hidden, versions
--   ARGV  replace, {id, at, at and nominal in the form of a state, frame} of each job
-- Answers the versions and the incarnations (text) as two arrays, or only the index of the first job whose id is taken.
local replace, jobs_ = args[1], args[2]
local ids, seen = {}, {}
for i, job in ipairs(jobs_) do
  ids[i] = job[1]
  check(job[3], TIMES)
end
local known = many('HMGET', job_states, ids)
if not replace then
  for i, id in ipairs(ids) do
    if known[i] or seen[id] then return i end
    seen[id] = true
  end
end
local version, first = take_versions(#jobs_), earliest()
local made, incarnations, told = {}, {}, false
local last = {}
for i, job in ipairs(jobs_) do
  local id, at = job[1], job[2]
  version = version + 1
  local old = last[id] or sound(known[i])
  local text = version_text(version)
  local state = text .. (old and incarnation_of(old) or text) .. job[3] .. rest_of(old)
  made[i], incarnations[i] = version, incarnation_of(state)
  if last[id] then flush() end
  last[id] = state
  note(hsets, job_states, id, state)
  note(hsets, jobs, id, job[4])
  if at then note(zadds, times, at, id) elseif old then note(zrems, times, id) end
  if old then note(hdels, hidden, id) end
  told = told or at and (not first or at < first)
end
flush()
if told then tell() end
return { made, incarnations }
