-- uses: write runs
-- add_runs: add pending runs.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes all that runs have
--   ARGV  {id, number of its call among ARGV, head} of each run; then call, state and live ('' if none) of each
-- Answers for each the id under which it is stored: its own, or that of the unfinished run with its unique key.
local runs, answers = args[1], {}
read_for_insert(runs)
for i, run in ipairs(runs) do
  local id, key = run[1], run[3][UNIQUE]
  local new = insert(run)
  answers[i] = not new and key and not found[id] and holder[key] or id
end
finish()
return answers
