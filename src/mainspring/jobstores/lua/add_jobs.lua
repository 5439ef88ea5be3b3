-- uses: jobs write
-- add_jobs: write jobs, all or none.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes job_states, hidden, versions
--   ARGV  replace, {id, at, nominal} of each job; then the frame of each
-- Answers the versions and the incarnations (text) as two arrays, or the index of a job whose id is taken.
local replace, rows = args[1], args[2]
local ids, seen = {}, {}
for i, row in ipairs(rows) do ids[i] = row[1] end
local known = many('HMGET', job_states, ids)
if not replace then
  for i, id in ipairs(ids) do
    if known[i] or seen[id] then return i end
    seen[id] = true
  end
end
local version, first = take_versions(#rows), earliest()
local made, incarnations, told = {}, {}, false
for i, row in ipairs(rows) do
  local id, at = row[1], row[2]
  version = version + 1
  local old = seen[id] or unpacked(known[i], JOB_STATE_SIZE)
  local text = string.format('%.0f', version)
  local state = { version, type(old) == 'table' and old[INCARNATION] or text, at, row[3], false }
  if type(old) == 'table' then state[MISS] = old[MISS] end
  seen[id] = state
  made[i], incarnations[i] = version, state[INCARNATION]
  hput(job_states, id, cmsgpack.pack(state))
  hput(jobs, id, ARGV[i + 1])
  zput(times, id, at)
  if type(old) == 'table' then zput(hidden, id, false) end
  told = told or at and (not first or at < first)
end
flush()
if told then tell() end
return { made, incarnations }
