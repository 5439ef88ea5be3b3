-- discard: delete the records of a job that were set aside.
--   KEYS  prefix, jobs, times (see lib_base); reads and writes broken; writes broken_states, broken_frames
--   ARGV  id
-- Answers how many there were.
local all, count = call('HGETALL', prefix .. 'broken'), 0
for i = 1, #all, 2 do
  local ok, said = pcall(cmsgpack.unpack, all[i + 1])
  if ok and type(said) == 'table' and said[1] == args[1] then
    for _, key in ipairs({ 'broken', 'broken_states', 'broken_frames' }) do call('HDEL', prefix .. key, all[i]) end
    count = count + 1
  end
end
return count
