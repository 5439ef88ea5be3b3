-- uses: jobs
-- remove_jobs: remove jobs, or jobs that were set aside. The numbering of versions goes on.
--   KEYS  prefix, jobs, times (see lib/base); reads and writes job_states, hidden, broken; writes broken_states,
--         broken_frames
--   ARGV  {id, the version it must have (in the form of a state; false: any)} of each job (false: all), whether to
--         remove jobs that were set aside instead, whatever their version
-- Answers how many were removed.
local marks, aside, count = args[1], args[2], 0

local function count_and_unlink(counted, ...)
  count = call('HLEN', counted)
  call('UNLINK', counted, ...)
  return count
end

if aside then
  local broken, states, frames = prefix .. 'broken', prefix .. 'broken_states', prefix .. 'broken_frames'
  if not marks then return count_and_unlink(broken, states, frames) end
  local wanted, all = {}, call('HGETALL', broken)
  for _, mark in ipairs(marks) do wanted[mark[1]] = true end
  for i = 1, #all, 2 do
    local ok, said = pcall(cmsgpack.unpack, all[i + 1])
    if ok and type(said) == 'table' and wanted[said[1]] then
      for _, key in ipairs({ broken, states, frames }) do call('HDEL', key, all[i]) end
      count = count + 1
    end
  end
  return count
end

if not marks then return count_and_unlink(job_states, jobs, times, hidden) end
for _, mark in ipairs(marks) do
  local id, state = mark[1], job_state(mark[1])
  if state and (not mark[2] or mark[2] == version_of(state)) then
    call('HDEL', job_states, id)
    call('HDEL', jobs, id)
    call('ZREM', times, id)
    call('HDEL', hidden, id)
    count = count + 1
  end
end
return count
