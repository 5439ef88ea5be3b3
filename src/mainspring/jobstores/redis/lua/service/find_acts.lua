-- find_acts: read acts of people, newest first.
--   KEYS  prefix, jobs, times (see lib/base); reads acts, act_ids, acts_about
--   ARGV  the subject (false: any), the id to continue after (or false), how many acts at most
-- Answers two arrays: ids, and the record of each (about, NUL, frame).
local about, after, limit = args[1], args[2], args[3]
local key, highest, lowest = prefix .. 'act_ids', after and '(' .. after or '+', '-'
if about then
  key, lowest = prefix .. 'acts_about', '[' .. about .. '\0'
  highest = '(' .. about .. (after and '\0' .. after or '\1')
end
local ids = call('ZREVRANGEBYLEX', key, highest, lowest, 'LIMIT', 0, limit)
for i, member in ipairs(about and ids or {}) do ids[i] = member:sub(#about + 2) end
return { ids, many('HMGET', prefix .. 'acts', ids) }
