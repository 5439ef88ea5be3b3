-- lib/base: the keys of one shard and its clock; the loader puts it in front of every script.
--   KEYS  prefix  `{name:k}:`. Every key but the next two is this prefix and one of the names below, so that all keys
--                 of a shard share a hash slot. Where a name ends in a colon, text follows: a lane, a token, a number.
--         jobs    hash  job id -> frame
--         times   zset  job id -> next run time, of the jobs that are not paused
--   ARGV  1       MessagePack array of the script's arguments; absent values are false
-- Numbers are whole and below 2^53, so Lua's doubles hold them; `..` and tostring() would not print them whole. Only what
-- is due after the year 2255 is not: so far away a score is some microseconds off, and what is answered comes from a text.
-- Times as text have 18 characters: plain in the states of jobs; everywhere else with 10^17 more, so that the order of
-- the texts is that of the times, before 1970 too.
--
--   job_states  hash  job id -> see lib/jobs
--   hidden      hash  job id -> until when it is not handed out again
--   versions    text  the last version that was given
--   broken, broken_states, broken_frames
--               hash  version -> {job id, reason, when} of a job set aside; what job_states had; what jobs had
--   r:          hash  `r:<run id>`: a run, see lib/runs
--   calls       hash  run id -> bytes
--   states      hash  run id -> bytes that are too long for the hash of the run
--   lives       hash  run id -> bytes that beats reported
--   created     zset  creation time and id of all runs; its score is 0, as where nothing else is said
--   by_job      zset  creation time and id of a job's runs -> checksum of the job's id, which others may share
--   g:          zset  `g:<group>`: creation time and id of its runs
--   s:          zset  `s:<status>`: creation time and id of the runs that ended in it, unless they succeeded
--   f:          hash  `f:<run id>`: run that comes after it -> mask of the ends that let that one go on
--   a:          hash  `a:<run id>`: run that it comes after -> the same mask
--   m:          set   `m:<gate>`: the unfinished runs of a gate
--   l:          set   `l:<gate>`: those of them that run, each of which takes a slot
--   b:          zset  `b:<gate>` NUL `<lane>`: the runs that wait for a slot: urgency, creation time and id
--   B:          set   `B:<gate>`: the lanes of those
--   y:          hash  `y:<gate>`: allowed (the number that somebody has set), tat and line (see core/gates.py)
--   gates       set   the gates that have a y:
--   numbered    set   the gates whose y: has allowed
--   w:          zset  `w:<lane>`: place and id of the runs that are due
--   d:          zset  `d:<lane>`: place and id of the others -> run time
--   t:          set   `t:<token>`: the running runs claimed under it
--   leases      zset  token -> when the lease of its runs is over
--   extended    zset  id of a running run whose lease is not that of its token -> when it is over
--   e:          set   `e:<instant>+<microseconds>`: runs that ended in that instant and are kept for that long
--   ended       zset  what follows `e:` -> when they ended, unless the user chose how long to keep them (it is odd)
--   expires     zset  what follows `e:` -> until when they are kept
--   gone, gone_before
--               set   ids of deleted runs, since gone_since (text) and before
--   unique      hash  unique key -> the unfinished run that holds it
--   totals      hash  `<status>:<lane>` -> runs that are there; claims only look into lanes where some are pending
--   asked       hash  `runs` -> ended runs that are kept for as long as was asked for, however many there are
--   counters    hash  final status -> runs that ever reached it
--   limits      hash  queue -> how many of its runs may run at once; it is paused if that is 0 or less
--   sequence    text  number of the last script that put runs into lanes or ended some
--   outbox      hash  id of a follow-up for another shard -> when it was made
--   outbox_runs hash  that id -> bytes of the run
--   nodes, node_beats, node_ends
--               hash  node id -> JSON; zset node id -> when it was last heard of; zset node id -> until when it is listed
--   acts        hash  id of what somebody did -> the thing it is about, NUL, bytes
--   act_ids     zset  those ids, which sort by time
--   acts_about  zset  the thing, NUL, and the id
--   m:          hash  `m:<level, kind, time>`: name -> what was counted, as places and numbers in turn (MessagePack)
--   meta        hash  schema, shards, made (when it was written: tells a store that has lost all from the one before)
--   shift       text  microseconds by which a test has moved the clock
--   wake, ends  text  number of wake-ups so far, and of ends that were told; also the pub/sub channels of these names
-- Widths of texts in records.
local TIME, TIMES, URGENCY_SIZE, PLACE_SIZE = 18, 36, 24, 45
local prefix, jobs, times = KEYS[1], KEYS[2], KEYS[3]
local runs = prefix .. 'r:'
local call = redis.call
local args = ARGV[1] and cmsgpack.unpack(ARGV[1])
local clock = call('TIME')
local shift = call('GET', prefix .. 'shift')
local now = clock[1] * 1000000 + clock[2] + (tonumber(shift) or 0)
-- Printing a number takes longer than reading a key, the more so for a script that has not run for a while.
local moment = shift and string.format('%.0f', now) or clock[1] .. ('00000' .. clock[2]):sub(-6)
if now >= 2 ^ 53 then error('the clock of this server is beyond the year 2255') end
