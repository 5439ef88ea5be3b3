-- uses: lanes
-- queues: the lanes that hold unfinished runs or are paused.
--   KEYS  prefix, jobs, times (see lib_base); reads totals, paused; reads and writes w:, d:
--   ARGV  (nothing)
-- Answers for each: name, waiting, delayed, running, 1 if paused, the run time that has been due longest (or nil).
local running, stopped, answers = {}, {}, {}
local totals = call('HGETALL', prefix .. 'totals')
for i = 1, #totals, 2 do
  local status, name = totals[i]:sub(1, 1), totals[i]:sub(2)
  if status == '0' then running[name] = running[name] or 0 end
  if status == '1' then running[name] = tonumber(totals[i + 1]) end
end
for _, name in ipairs(call('SMEMBERS', prefix .. 'paused')) do
  stopped[name], running[name] = true, running[name] or 0
end

-- The first of each priority has the earliest run time of its priority.
local function oldest(key)
  local from, first = '-', false
  while true do
    local member = call('ZRANGEBYLEX', key, from, '+', 'LIMIT', 0, 1)[1]
    if not member then return first end
    local run_at = tonumber(member:sub(7, 23))
    if not first or run_at < first then first = run_at end
    from = '(' .. member:sub(1, 6) .. ':' -- above every digit
  end
end

for name, number in pairs(running) do
  ripen(name)
  local due, later = call('ZCARD', prefix .. 'w:' .. name), call('ZCARD', prefix .. 'd:' .. name)
  if due + later + number > 0 or stopped[name] then
    answers[#answers + 1] = { name, due, later, number, stopped[name] and 1 or 0, oldest(prefix .. 'w:' .. name) }
  end
end
return answers
