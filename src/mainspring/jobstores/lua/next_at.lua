-- uses: jobs
-- next_at: the earliest next run time of the shard's jobs, handed out or not.
--   KEYS  prefix, jobs, times (see lib_base); reads job_states, hidden
--   ARGV  (nothing)
local first = earliest()
for _, packed in ipairs(many('HMGET', job_states, redis.call('ZRANGE', hidden, 0, -1))) do
  local state = unpacked(packed, JOB_STATE_SIZE)
  local at = state and state[AT]
  if at and (not first or at < first) then first = at end
end
return first or false
