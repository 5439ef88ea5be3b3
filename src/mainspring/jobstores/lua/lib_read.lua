-- lib_read: runs as they are answered: six arrays of equal length (ids, heads, leases, calls, states, lives).
local function run_rows(ids)
  return {
    ids,
    many('HMGET', heads, ids),
    many('ZMSCORE', leases, ids),
    many('HMGET', calls, ids),
    many('HMGET', states, ids),
    many('HMGET', lives, ids),
  }
end
