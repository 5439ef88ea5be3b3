-- find_tallies: read counts.
--   KEYS  prefix, jobs, times (see lib/base); reads m:
--   ARGV  texts of level, kind and time; a name (false: all)
-- Answers an array for each text: names and counts in turn.
local answers = {}
for i, text in ipairs(args[1]) do
  local key = prefix .. 'm:' .. text
  if args[2] then
    local cells = call('HGET', key, args[2])
    answers[i] = cells and { args[2], cells } or {}
  else
    answers[i] = call('HGETALL', key)
  end
end
return answers
