-- uses: queues
-- stats: the queues that hold unfinished runs or are paused, and what was counted.
--   KEYS  prefix, jobs, times (see lib_base); reads totals, paused, w:, d:, counters, job_states
--   ARGV  (nothing)
-- Answers the number of jobs; how many runs ever reached each final status, as names and numbers in turn; and for each
-- queue its name, waiting, delayed, running, 1 if paused, the run time that has been due longest (as a place has it, or
-- nil).
local running, stopped, answers = {}, {}, {}
local counts = call('HGETALL', totals)
for i = 1, #counts, 2 do
  local status, name = counts[i]:sub(1, 1), counts[i]:sub(2)
  if status == '0' then running[name] = running[name] or 0 end
  if status == '1' then running[name] = tonumber(counts[i + 1]) or 0 end
end
for _, name in ipairs(call('SMEMBERS', prefix .. 'paused')) do
  stopped[name], running[name] = true, running[name] or 0
end

-- The first of each priority has the earliest run time of its priority.
local function oldest(name)
  local from, first = '-', run_at_of(call('ZRANGE', delayed .. name, 0, 0)[1])
  if first and first > present then first = false end
  while true do
    local member = call('ZRANGEBYLEX', waiting .. name, from, '+', 'LIMIT', 0, 1)[1]
    if not member then return first or false end
    local run_at = run_at_of(member)
    if not first or run_at < first then first = run_at end
    from = '(' .. member:sub(1, 6) .. ':' -- above every digit
  end
end

for name, number in pairs(running) do
  local ripe = call('ZCOUNT', delayed .. name, '-inf', moment)
  local due, later = call('ZCARD', waiting .. name) + ripe, call('ZCARD', delayed .. name) - ripe
  if due + later + number > 0 or stopped[name] then
    answers[#answers + 1] = { name, due, later, number, stopped[name] and 1 or 0, oldest(name) }
  end
end
return { call('HLEN', prefix .. 'job_states'), call('HGETALL', prefix .. 'counters'), answers }
