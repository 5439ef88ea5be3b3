-- uses: write heads insert runs
-- delete_runs: delete finished runs.
--   KEYS  prefix, jobs, times (see lib_base); writes all that runs have
--   ARGV  run ids
-- Answers for each 1 deleted, 0 not finished, 2 no such run.
local answers, ended_ones, seen = {}, {}, {}
read(args[1])
for i, id in ipairs(args[1]) do
  local run = known(id)
  if not run or seen[id] then
    answers[i] = 2
  elseif run.status <= RUNNING then
    answers[i] = 0
  else
    seen[id] = true
    ended_ones[#ended_ones + 1] = id
    answers[i] = 1
  end
end
delete(ended_ones)
return answers
