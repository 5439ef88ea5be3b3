-- uses: write heads insert
-- add_runs: add pending runs.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes all that runs have
--   ARGV  runs (see lib_insert)
-- Answers for each the id under which it is stored: its own, or that of the unfinished run with its unique key; nothing
-- if that is its own for all of them.
local runs, answers, own = args[1], {}, true
read_for_insert(runs)
for i, run in ipairs(runs) do
  local id, key = run[ID], run[UNIQUE]
  local new = insert(run)
  answers[i] = not new and key and not found[id] and holder[key] or id
  own = own and answers[i] == id
end
finish()
return own and {} or answers
