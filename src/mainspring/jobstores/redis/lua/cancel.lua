-- uses: write heads insert runs
-- cancel: mark running runs to be stopped.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes heads
--   ARGV  run ids
-- Answers for each 1 marked, 0 not running, 2 no such run.
local answers = {}
read(args[1])
for i, id in ipairs(args[1]) do
  local run = known(id)
  if not run then
    answers[i] = 2
  elseif run.status ~= RUNNING then
    answers[i] = 0
  else
    note(hsets, heads, id, sub(run.head, 1, 9) .. '\195' .. sub(run.head, 11))
    answers[i], stirred = 1, true
  end
end
finish()
return answers
