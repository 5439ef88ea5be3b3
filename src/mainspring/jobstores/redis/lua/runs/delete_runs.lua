-- uses: write runs edges lifecycle
-- delete_runs: delete finished runs.
--   KEYS  prefix, jobs, times (see lib/base); writes all that runs have
--   ARGV  run ids
-- Answers a number for each run: 1 deleted, 0 not finished, 2 no such run.
local answers, found = {}, {}
for i, id in ipairs(args[1]) do
  local run = not found[id] and load_run(id, true)
  answers[i] = not run and 2 or FINAL[run.status] and 1 or 0
  if answers[i] == 1 then found[id] = run end
end
delete(found)
return answers
