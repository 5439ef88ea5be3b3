-- find_acts: what people did, newest first.
--   KEYS  prefix, jobs, times (see lib_base); reads acts, act_ids, acts_about
--   ARGV  the thing it is about or false for all, the id after which to go on or false, how many at most
-- Answers ids and what is kept of each (about, NUL, frame): two arrays.
local about, after, limit = args[1], args[2], args[3]
if not about then
  local ids = call('ZREVRANGEBYLEX', prefix .. 'act_ids', after and '(' .. after or '+', '-', 'LIMIT', 0, limit)
  return { ids, many('HMGET', prefix .. 'acts', ids) }
end
local highest = after and '(' .. about .. '\0' .. after or '(' .. about .. '\1'
local found = call('ZREVRANGEBYLEX', prefix .. 'acts_about', highest, '[' .. about .. '\0', 'LIMIT', 0, limit)
local ids = {}
for i, member in ipairs(found) do ids[i] = member:sub(#about + 2) end
return { ids, many('HMGET', prefix .. 'acts', ids) }
