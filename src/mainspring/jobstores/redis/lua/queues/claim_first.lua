-- claim_first: the start of claim. If no run, or just one plain run, is pending in the lanes, this file does all the
-- work. That is how an idle node claims a run for which somebody waits. The server's caches are cold then, and defining
-- the functions of the other files would take as long as this whole file. Every other case goes on to claim.lua, whose
-- header describes the answer.
do
  local lanes, limits, fields, found, number = {}, {}, {}, nil, 0
  for _, want in ipairs(args[1]) do
    for _, lane in ipairs(want[1]) do
      local n = #lanes + 1
      lanes[n], limits[n], fields[2 * n - 1], fields[2 * n] = lane, want[2], 'pending:' .. lane, 'running:' .. lane
    end
  end
  local token, until_ = args[3], now + args[4]
  local held, totals = prefix .. 't:' .. token, prefix .. 'totals'
  if #lanes > 0 and #lanes <= 1000 and call('EXISTS', held, prefix .. 'limits') == 0 then
    local counts = call('HMGET', totals, unpack(fields))
    for i = 1, #lanes do
      local pending = tonumber(counts[2 * i - 1]) or 0
      if pending > 0 then found, number = i, number + pending end
    end
    if not found then return { now, false, until_, { {}, {}, {}, {}, {}, {} }, {} } end
    if number == 1 and limits[found] >= 1 then
      local lane = lanes[found]
      local member = call('ZPOPMIN', prefix .. 'w:' .. lane)[1]
      if member then
        local id = member:sub(PLACE_SIZE + 1)
        local key = runs .. id
        local run = member:byte(PLACE_SIZE) == 48 and call('HMGET', key, 's', 'a', 'm')
        if run and run[1] == 'pending' and not run[2] then
          local attempts = '1 ' .. moment
          call('HSET', key, 's', 'running', 'a', attempts, 'k', token, 'h', args[2])
          call('HSET', totals, fields[2 * found - 1], '0', fields[2 * found], (tonumber(counts[2 * found]) or 0) + 1)
          call('SADD', held, id)
          call('ZADD', prefix .. 'leases', until_, token)
          local bytes = call('HGET', prefix .. 'calls', id)
          return { now, false, until_, { { id }, { { lane, attempts, run[3] } }, { bytes }, {}, {}, {} }, {} }
        end
        call('ZADD', prefix .. 'w:' .. lane, '0', member) -- it needs a closer look
      end
    end
  end
end
