-- list_broken: read the jobs that were set aside.
--   KEYS  prefix, jobs, times (see lib/base); reads broken, broken_frames
--   ARGV  (nothing)
-- Answers {job id, reason, when} of each, packed, and the frames: two arrays, in no order.
local fields = call('HKEYS', prefix .. 'broken')
return { many('HMGET', prefix .. 'broken', fields), many('HMGET', prefix .. 'broken_frames', fields) }
