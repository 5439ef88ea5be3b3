-- uses: write runs
-- extend: renew the lease of each claim that is still held, and keep the live bytes that its heartbeat reports.
--   KEYS  prefix, jobs, times (see lib/base); reads r:, t:; writes leases, extended, lives
--   ARGV  lease in microseconds, {run id, token, live (false: nothing new)} of each beat
-- Answers a number for each beat: 0 lost, 1 held, 2 no such run, 3 held but to be stopped.
local until_, answers = now + args[1], {}
local beating = {} -- by token: the ids of its runs that beat
for i, beat in ipairs(args[2]) do
  local id, token, run = beat[1], beat[2], load_run(beat[1])
  if not run then
    answers[i] = 2
  elseif run.status ~= RUNNING or run.token ~= token then
    answers[i] = 0
  else
    beating[token] = beating[token] or {}
    beating[token][id] = true
    if beat[3] then note(hsets, lives, id, beat[3]) end
    answers[i] = run.cancelling and 3 or 1
  end
end
for token, some in pairs(beating) do
  local count_ = 0
  for _ in pairs(some) do count_ = count_ + 1 end
  local all = count_ == call('SCARD', held .. token)
  for id in pairs(some) do
    if all then note(zrems, extended, id) else note(zadds, extended, until_, id) end
  end
  -- If all runs of a token beat, they share a lease again.
  if all then note(zadds, leases, until_, token) end
end
flush()
return answers
