-- uses: write runs lanes
-- queues: the lanes that hold unfinished runs or are paused.
--   KEYS  prefix, jobs, times (see lib_base); reads lanes, paused, by_status; reads and writes waiting, delayed
--   ARGV  (nothing)
-- Answers for each: name, waiting, delayed, running, 1 if paused, the run time that has been due longest (or nil).
local names, stopped, answers = {}, {}, {}
for _, name in ipairs(redis.call('SMEMBERS', lanes)) do names[name] = true end
for _, name in ipairs(redis.call('SMEMBERS', paused)) do names[name], stopped[name] = true, true end

-- The first of each priority has the earliest run time of its priority.
local function oldest(key)
  local from, first = '-', false
  while true do
    local member = redis.call('ZRANGEBYLEX', key, from, '+', 'LIMIT', 0, 1)[1]
    if not member then return first end
    local run_at = tonumber(member:sub(7, 23))
    if not first or run_at < first then first = run_at end
    from = '(' .. member:sub(1, 6) .. ':' -- above every digit
  end
end

for name in pairs(names) do
  ripen(name)
  local due, later = redis.call('ZCARD', waiting .. name), redis.call('ZCARD', delayed .. name)
  local running = redis.call('ZCARD', by_status .. 'running:' .. name)
  if due + later + running > 0 or stopped[name] then
    answers[#answers + 1] = { name, due, later, running, stopped[name] and 1 or 0, oldest(waiting .. name) }
  end
end
return answers
