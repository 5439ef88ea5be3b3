-- find_acts: what people did, newest first.
--   KEYS  prefix, jobs, times (see lib/base); reads acts, act_ids, acts_about
--   ARGV  the thing it is about or false for all, the id after which to go on or false, how many at most
-- Answers ids and what is kept of each (about, NUL, frame): two arrays.
local about, after, limit = args[1], args[2], args[3]
local key, highest, lowest = prefix .. 'act_ids', after and '(' .. after or '+', '-'
if about then
  key, lowest = prefix .. 'acts_about', '[' .. about .. '\0'
  highest = '(' .. about .. (after and '\0' .. after or '\1')
end
local ids = call('ZREVRANGEBYLEX', key, highest, lowest, 'LIMIT', 0, limit)
for i, member in ipairs(about and ids or {}) do ids[i] = member:sub(#about + 2) end
return { ids, many('HMGET', prefix .. 'acts', ids) }
