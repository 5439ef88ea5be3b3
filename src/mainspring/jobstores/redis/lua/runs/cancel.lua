-- uses: write runs
-- cancel: mark running runs to be stopped.
--   KEYS  prefix, jobs, times (see lib/base); reads and writes r:
--   ARGV  run ids
-- Answers a number for each run: 1 marked, 0 not running, 2 no such run.
local answers = {}
for i, id in ipairs(args[1]) do
  local run = load_run(id)
  if not run then
    answers[i] = 2
  elseif run.status ~= RUNNING then
    answers[i] = 0
  else
    call('HSET', runs .. id, 'more', '1', 'cancelling', '1')
    answers[i], stirred = 1, true
  end
end
finish()
return answers
