-- uses: write runs
-- request_cancel: mark running runs to be stopped.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes heads
--   ARGV  run ids
-- Answers for each 1 marked, 0 not running, 2 no such run.
local answers = {}
read(args[1])
for i, id in ipairs(args[1]) do
  local head = found[id]
  if not head then
    answers[i] = 2
  elseif head[STATUS] ~= 'running' then
    answers[i] = 0
  else
    head[CANCELLING] = true
    keep(id, head)
    answers[i], stirred = 1, true
  end
end
finish()
return answers
