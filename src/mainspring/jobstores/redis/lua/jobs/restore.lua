-- uses: jobs
-- restore: put back the job that was set aside last under this id, with a new version.
--   KEYS  prefix, jobs, times (see lib/base); reads and writes job_states, versions, broken, broken_states,
--         broken_frames; reads by_job, r:
--   ARGV  id, its checksum
-- Answers 1, 0 if no such job was set aside, or -1 if another job has taken its id.
local broken, broken_states, broken_frames = prefix .. 'broken', prefix .. 'broken_states', prefix .. 'broken_frames'
local id, last = args[1], nil

local function broken_id(packed)
  local ok, said = pcall(cmsgpack.unpack, packed)
  return ok and type(said) == 'table' and said[1]
end

local all = call('HGETALL', broken)
for i = 1, #all, 2 do
  if broken_id(all[i + 1]) == id and (not last or tonumber(all[i]) > tonumber(last)) then last = all[i] end
end
if not last then return 0 end
if call('HEXISTS', job_states, id) == 1 then return -1 end
local first = earliest()
local state = sound(call('HGET', broken_states, last))
-- Nobody knows when an altered job is due, so it comes back paused.
if not state then state = last:rep(2) .. ('-'):rep(36) .. '000000000' end
local at = at_of(state)

-- Runs that ended while the job was set aside are still in its count.
local function unfinished()
  local sum = 0
  for _, member in ipairs(call('ZRANGEBYSCORE', prefix .. 'by_job', args[2], args[2])) do
    local run = call('HMGET', runs .. member:sub(TIME + 1), 's', 'job', 'incarnation')
    local is_unfinished = run[1] == 'blocked' or run[1] == 'pending' or run[1] == 'running'
    if is_unfinished and run[2] == id and run[3] == incarnation_of(state) then sum = sum + 1 end
  end
  return string.format('%09d', sum)
end

call('HSET', job_states, id, version_text(take_versions(1) + 1) .. state:sub(17, 68) .. unfinished() .. state:sub(78))
call('HSET', jobs, id, call('HGET', broken_frames, last) or '')
if at then call('ZADD', times, at, id) end
for _, key in ipairs({ broken, broken_states, broken_frames }) do call('HDEL', key, last) end
if at and (not first or at < first) then tell() end
return 1
