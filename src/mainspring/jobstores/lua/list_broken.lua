-- list_broken: the jobs that were set aside.
--   KEYS  prefix, jobs, times (see lib_base); reads broken, broken_frames
--   ARGV  (nothing)
-- Answers {job id, reason, when} packed, and frames: two arrays, in no order.
local fields = redis.call('HKEYS', broken)
return { many('HMGET', broken, fields), many('HMGET', broken_frames, fields) }
