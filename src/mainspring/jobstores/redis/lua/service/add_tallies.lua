-- add_tallies: add counts to the stored ones; a new name beyond the limit counts under the empty name.
--   KEYS  prefix, jobs, times (see lib/base); writes m:
--   ARGV  {level, kind and time as one text, the Unix second at which it expires (or false), the name, what to add as
--         places and numbers in turn} of each tally; then how many names a stretch has at most
for _, tally in ipairs(args[1]) do
  local key, name, more = prefix .. 'm:' .. tally[1], tally[3], tally[4]
  local known = call('HGET', key, name)
  if not known and name ~= '' and call('HLEN', key) - call('HEXISTS', key, '') >= args[2] then
    name = ''
    known = call('HGET', key, name)
  end
  local fine, cells = pcall(cmsgpack.unpack, known or '\144')
  if not fine or type(cells) ~= 'table' then cells = {} end
  local places = {}
  for i = 1, #cells, 2 do places[cells[i]] = i + 1 end
  for i = 1, #more, 2 do
    local at = places[more[i]]
    if at and tonumber(cells[at]) then
      cells[at] = cells[at] + more[i + 1]
    else
      cells[#cells + 1], cells[#cells + 2] = more[i], more[i + 1]
    end
  end
  call('HSET', key, name, cmsgpack.pack(cells))
  if tally[2] then call('EXPIREAT', key, whole(tally[2])) end
end
return 1
