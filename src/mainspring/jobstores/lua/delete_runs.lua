-- uses: write runs
-- delete_runs: delete finished runs.
--   KEYS  prefix, jobs, times (see lib_base); writes all that runs have
--   ARGV  run ids
-- Answers for each 1 deleted, 0 not finished, 2 no such run.
local answers = {}
read(args[1])
for i, id in ipairs(args[1]) do
  local head = found[id]
  if not head then
    answers[i] = 2
  elseif not FINAL[head[STATUS]] then
    answers[i] = 0
  else
    delete(id, head)
    answers[i] = 1
  end
end
flush()
forget_old_ids()
return answers
