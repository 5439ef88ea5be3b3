-- uses: write runs
-- extend: renew the lease of each claim that is still held and keep what it reports.
--   KEYS  prefix, jobs, times (see lib_base); reads heads, writes leases, lives
--   ARGV  lease in microseconds, {run id, token} of each beat; then the live of each ('' if nothing new)
-- Answers for each 0 lost, 1 held, 2 held but to be stopped, 3 no such run.
local until_, beats, ids, answers = now + args[1], args[2], {}, {}
for i, beat in ipairs(beats) do ids[i] = beat[1] end
read(ids)
for i, beat in ipairs(beats) do
  local id, head = beat[1], found[beat[1]]
  if not head then
    answers[i] = 3
  elseif head[STATUS] ~= 'running' or head[TOKEN] ~= beat[2] then
    answers[i] = 0
  else
    zput(leases, id, until_)
    if ARGV[i + 1] ~= '' then hput(lives, id, ARGV[i + 1]) end
    answers[i] = head[CANCELLING] and 2 or 1
  end
end
flush()
return answers
