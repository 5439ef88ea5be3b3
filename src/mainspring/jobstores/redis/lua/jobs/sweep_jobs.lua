-- uses: jobs
-- sweep_jobs: find the altered jobs of a page, and correct the times at which the others are handed out.
--   KEYS  prefix, jobs, times (see lib/base); reads job_states; writes times, hidden
--   ARGV  cursor (text; '0' at first), about how many jobs to read
-- Answers the cursor of the next page ('0': there is none), the ids of altered jobs, and the number of corrections.
local HIDDEN = 60000000 -- microseconds: nobody hides a job for longer
local altered, mended = {}, 0

local function is_time(text) return text == ('-'):rep(18) or text:find('^%-?%d+$') end

local page = call('HSCAN', job_states, args[1], 'COUNT', args[2])
for i = 1, #page[2], 2 do
  local id, state = page[2][i], sound(page[2][i + 1])
  if not state or not is_time(state:sub(33, 50)) or not is_time(state:sub(51, 68)) then
    altered[#altered + 1] = id
  else
    local at, score, shown = at_of(state), tonumber(call('ZSCORE', times, id)), call('HGET', hidden, id)
    if at ~= score then
      if at then call('ZADD', times, state:sub(33, 50), id) else call('ZREM', times, id) end
      mended = mended + 1
    end
    if shown and (tonumber(shown) or math.huge) > now + HIDDEN then
      call('HDEL', hidden, id)
      mended = mended + 1
    end
  end
end
-- Find the frames whose state is gone or has another name now.
if args[1] == '0' and call('HLEN', jobs) ~= call('HLEN', job_states) then
  for _, id in ipairs(call('HKEYS', jobs)) do
    if call('HEXISTS', job_states, id) == 0 then altered[#altered + 1] = id end
  end
end
if mended > 0 then tell() end
return { page[1], altered, mended }
