-- standings: read the statuses of runs.
--   KEYS  prefix, jobs, times (see lib/base); reads r:
--   ARGV  ids
-- Answers two arrays: the status of each run, or nil; and the run that refused it, '' if none did.
local statuses, refused = {}, {}
for i, id in ipairs(args[1]) do
  local read = call('HMGET', runs .. id, 's', 'x')
  statuses[i], refused[i] = read[1], read[2] or ''
end
return { statuses, refused }
