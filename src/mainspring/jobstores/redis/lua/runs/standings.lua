-- standings: the statuses of runs.
--   KEYS  prefix, jobs, times (see lib/base); reads r:
--   ARGV  ids
-- Answers for each its status, or nil, and in a second array the run that refused it, '' if none did.
local statuses, refused = {}, {}
for i, id in ipairs(args[1]) do
  local read = call('HMGET', runs .. id, 's', 'x')
  statuses[i], refused[i] = read[1], read[2] or ''
end
return { statuses, refused }
