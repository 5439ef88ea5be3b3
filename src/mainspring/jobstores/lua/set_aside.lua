-- uses: jobs
-- set_aside: keep a job that cannot be restored out of the way of the others.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes job_states, hidden, broken, broken_states, broken_frames
--   ARGV  id, the version it must have, reason
-- Answers 1, or 0 if it has another version or is not there.
local id, version = args[1], args[2]
local state = job_state(id)
if not state or state[VERSION] ~= version then return 0 end
local field = string.format('%.0f', version)
redis.call('HSET', broken, field, cmsgpack.pack({ id, args[3], now }))
redis.call('HSET', broken_states, field, redis.call('HGET', job_states, id))
redis.call('HSET', broken_frames, field, redis.call('HGET', jobs, id) or '')
redis.call('HDEL', job_states, id)
redis.call('HDEL', jobs, id)
redis.call('ZREM', times, id)
redis.call('ZREM', hidden, id)
return 1
