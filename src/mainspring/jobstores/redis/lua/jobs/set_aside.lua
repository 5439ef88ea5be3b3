-- uses: jobs
-- set_aside: move a job that cannot be read out of the way of the others, and keep its bytes.
--   KEYS  prefix, jobs, times (see lib/base); reads and writes job_states, hidden; writes broken, broken_states,
--         broken_frames
--   ARGV  id, the version it must have (in the form of a state; false: whatever its state is), reason
-- Answers 1, or 0 if the job has another version or is not there.
local id, version = args[1], args[2]
local state = version and job_state(id) or call('HGET', job_states, id)
if not version and not state and call('HEXISTS', jobs, id) == 1 then state = '' end
if not state or version and (not sound(state) or version_of(state) ~= version) then return 0 end
if not version or call('HEXISTS', prefix .. 'broken', version) == 1 then version = version_text(take_versions(1) + 1) end
call('HSET', prefix .. 'broken', version, cmsgpack.pack({ id, args[3], now }))
call('HSET', prefix .. 'broken_states', version, state)
call('HSET', prefix .. 'broken_frames', version, call('HGET', jobs, id) or '')
call('HDEL', job_states, id)
call('HDEL', jobs, id)
call('ZREM', times, id)
call('HDEL', hidden, id)
return 1
