-- made_behind: answer the creation time of the run that is a number of runs older than another run.
--   KEYS  prefix, jobs, times (see lib/base); reads created
--   ARGV  creation time and id of the other run, in the form of the index (false: the newest run), number of runs
-- Answers a creation time in the form of an index, or nil if there are fewer runs.
local after, number = args[1], args[2]
local found = call('ZREVRANGEBYLEX', prefix .. 'created', after and '[' .. after or '+', '-', 'LIMIT', number, 1)[1]
return found and found:sub(1, TIME) or false
