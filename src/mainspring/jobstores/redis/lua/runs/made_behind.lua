-- made_behind: when the run was made that lies some runs behind another by age.
--   KEYS  prefix, jobs, times (see lib/base); reads created
--   ARGV  creation time and id of the other, as the index has them (false: the newest), how many runs
-- Answers a creation time, as an index has it, or nil if there are not as many.
local after, number = args[1], args[2]
local found = call('ZREVRANGEBYLEX', prefix .. 'created', after and '[' .. after or '+', '-', 'LIMIT', number, 1)[1]
return found and found:sub(1, TIME) or false
