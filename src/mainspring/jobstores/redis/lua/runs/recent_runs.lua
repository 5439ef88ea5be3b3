-- uses: read
-- recent_runs: read the newest runs of some jobs.
--   KEYS  prefix, jobs, times (see lib/base); reads by_job and all that runs have
--   ARGV  job ids; the checksum of each; how many runs of each
-- Answers the runs of each job (see lib/read), newest first.
local names, sums, limit = args[1], args[2], args[3]
local answers = {}
for n, job in ipairs(names) do
  local ids, first, members = {}, 0, nil
  repeat -- jobs may share a checksum
    members = call('ZREVRANGEBYSCORE', prefix .. 'by_job', sums[n], sums[n], 'LIMIT', first, limit)
    for _, member in ipairs(members) do
      local id = member:sub(TIME + 1)
      if #ids < limit and call('HGET', runs .. id, 'job') == job then ids[#ids + 1] = id end
    end
    first = first + limit
  until #ids == limit or #members < limit
  answers[n] = run_rows(ids)
end
return answers
