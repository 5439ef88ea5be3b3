-- uses: queues
-- stats: read the numbers of the lanes with unfinished runs and of the queues with a limit, and the counters.
--   KEYS  prefix, jobs, times (see lib/base); reads totals, limits, numbered, y:, w:, d:, counters, job_states
--   ARGV  (nothing)
-- Answers the number of jobs; how many runs ever reached each final status, as names and numbers in turn; for each lane
-- its name, waiting, delayed, blocked, running, the limit of its queue (only in the plain lane, else nil), and the
-- oldest run time that is due (in the form of a place, or nil); and the gates that somebody has set a number for, as
-- names and numbers in turn.
local running, blocked, limit_of, answers = {}, {}, {}, {}
local counts = call('HGETALL', totals)
for i = 1, #counts, 2 do
  local status, name = counts[i]:match('^(%a+):(.*)$')
  if status == 'pending' then running[name] = running[name] or 0 end
  if status == 'blocked' then
    blocked[name], running[name] = tonumber(counts[i + 1]) or 0, running[name] or 0
  end
  if status == 'running' then running[name] = tonumber(counts[i + 1]) or 0 end
end
local limits = call('HGETALL', prefix .. 'limits')
for i = 1, #limits, 2 do
  limit_of[limits[i]], running[limits[i]] = tonumber(limits[i + 1]), running[limits[i]] or 0
end

-- The first of each priority has the earliest run time of its priority.
local function oldest(name)
  local from, first = '-', run_at_of(call('ZRANGE', delayed .. name, 0, 0)[1])
  if first and first > present then first = false end
  while true do
    local member = call('ZRANGEBYLEX', waiting .. name, from, '+', 'LIMIT', 0, 1)[1]
    if not member then return first or false end
    local run_at, priority = run_at_of(member), member:match('^%d%d%d%d%d%d')
    if not priority then return first or false end -- somebody altered it; none behind it can be in order
    if not first or run_at < first then first = run_at end
    from = '[' .. string.format('%06d', priority + 1) -- above the member, so that the loop ends
  end
end

for name, number in pairs(running) do
  local ripe = call('ZCOUNT', delayed .. name, '-inf', moment)
  local due, later = call('ZCARD', waiting .. name) + ripe, call('ZCARD', delayed .. name) - ripe
  local held = blocked[name] or 0
  if due + later + held + number > 0 or limit_of[name] then
    answers[#answers + 1] = { name, due, later, held, number, limit_of[name] or false, oldest(name) }
  end
end
local numbers = {}
for _, name in ipairs(call('SMEMBERS', prefix .. 'numbered')) do
  local allowed = tonumber(call('HGET', prefix .. 'y:' .. name, 'allowed') or nil)
  if allowed then numbers[#numbers + 1], numbers[#numbers + 2] = name, allowed end
end
return { call('HLEN', prefix .. 'job_states'), call('HGETALL', prefix .. 'counters'), answers, numbers }
