-- uses: write heads insert runs
-- purge: cancel the pending runs of a lane.
--   KEYS  prefix, jobs, times (see lib_base); writes all that runs have
--   ARGV  lane, how many at most
-- Answers how many were taken out of the lane, and how many of them were cancelled: one that is damaged is not.
local lane, limit = args[1], args[2]
local members = call('ZRANGE', waiting .. lane, 0, limit - 1)
local due = #members
if due < limit then
  for _, member in ipairs(call('ZRANGE', delayed .. lane, 0, limit - due - 1)) do members[#members + 1] = member end
end
local ids, done = {}, 0
for i, member in ipairs(members) do ids[i] = member:sub(PLACE_SIZE + 1) end
read(ids)

-- Where the value begins that comes after so many others.
local function after(head, from, count) return (cmsgpack.unpack_limit(head, count, from - 1)) + 1 end

-- The head of a cancelled run: without its unique key, and finished now.
local function cancelled(run, place)
  local head, b, c = run.head, run.b, run.c
  local block = NIL .. sub(head, after(head, b, 1), after(head, b, 5) - 1) .. cmsgpack.pack(now)
    .. sub(head, after(head, b, 6), c - 1)
  return MAGIC .. string.char(CANCELLED) .. sub(head, 5, 16) .. UINT .. struct.pack('>I4', b + #block)
    .. sub(head, A, b - 1) .. block .. sub(head, c, after(head, c, 2) - 1) .. place
end

for i, id in ipairs(ids) do
  local run = known(id)
  note(zrems, (i <= due and waiting or delayed) .. lane, members[i])
  if run and run.status == PENDING then
    unfile(id, run)
    if run.owner then owe(run.owner, run.job, -1) end
    if run.unique then note(hdels, unique, run.unique) end
    note(hsets, heads, id, cancelled(run, place_text(file_ended(id, CANCELLED, run.lane, run.created, run.keep))))
    done = done + 1
  end
end
finish()
return { #members, done }
