-- lib/base: the keys of one shard and its clock; the loader puts this file in front of every script.
--   KEYS  prefix  `{name:k}:`. Every key but the next two consists of this prefix and one of the names below, so all
--                 keys of a shard share a hash slot. After a name with a colon comes text: a lane, a token, a number.
--         jobs    hash  job id -> frame
--         times   zset  job id -> next run time, of the jobs that are not paused
--   ARGV  1       MessagePack array of the script's arguments; false stands for an absent value
-- Numbers are whole and below 2^53, so Lua's doubles hold them; `..` and tostring() would round them. Times after the
-- year 2255 are the exception: the score of such a time is some microseconds off, so scripts answer it from a text.
-- Times as text have 18 characters. In the states of jobs they are plain; everywhere else 10^17 is added to them, so
-- that the texts sort like the times, even before 1970.
--
--   job_states  hash  job id -> see lib/jobs
--   hidden      hash  job id -> the time until which the job is not handed out again
--   versions    text  the last version that was given to a job
--   broken, broken_states, broken_frames
--               hash  version -> {job id, reason, when} of a job set aside; what job_states had; what jobs had
--   r:          hash  `r:<run id>`: a run, see lib/runs
--   calls       hash  run id -> bytes of its call
--   states      hash  run id -> bytes of a state that is too long for the hash of the run
--   lives       hash  run id -> bytes that heartbeats reported
--   created     zset  creation time and id of all runs; the score is 0, as in every zset without an arrow
--   by_job      zset  creation time and id of a job's runs -> checksum of the job's id, which others may share
--   g:          zset  `g:<group>`: creation time and id of its runs
--   s:          zset  `s:<status>`: creation time and id of the runs that ended in it, unless they succeeded
--   f:          hash  `f:<run id>`: successor of the run -> mask of the ends that let the successor start
--   a:          hash  `a:<run id>`: predecessor of the run -> the same mask
--   m:          set   `m:<gate>`: the unfinished runs of a gate
--   l:          set   `l:<gate>`: the running runs of a gate; each takes a slot
--   b:          zset  `b:<gate>` NUL `<lane>`: the runs that wait for a slot: priority, creation time and id
--   B:          set   `B:<gate>`: the lanes that have a b: for this gate
--   y:          hash  `y:<gate>`: allowed (the number that somebody has set), tat and line (see core/waiting/gates.py)
--   gates       set   the gates that have a y:
--   numbered    set   the gates whose y: has allowed
--   w:          zset  `w:<lane>`: place and id of the pending runs that are due
--   d:          zset  `d:<lane>`: place and id of the other pending runs -> run time
--   t:          set   `t:<token>`: the running runs that were claimed under the token
--   leases      zset  token -> end of the lease that its runs share
--   extended    zset  id of a running run with a lease of its own -> end of that lease
--   e:          set   `e:<instant>+<microseconds>`: runs that ended at that instant and are kept for that long
--   ended       zset  the part after `e:` -> when the runs ended; only if the user did not choose how long to keep them
--                     (a chosen time is odd)
--   expires     zset  the part after `e:` -> until when the runs are kept
--   gone, gone_before
--               set   ids of deleted runs, since gone_since (text) and before
--   unique      hash  unique key -> the unfinished run that holds it
--   totals      hash  `<status>:<lane>` -> number of such runs; a claim looks only into lanes that have pending runs
--   asked       hash  `runs` -> number of ended runs whose retention the user chose; pruning by number skips them
--   counters    hash  final status -> number of runs that ever reached it
--   limits      hash  queue -> how many of its runs may run at once; 0 or less pauses the queue
--   sequence    text  the last number that was drawn to order the runs in a lane
--   outbox      hash  id of a follow-up for another shard -> when it was put here
--   outbox_runs hash  the same id -> bytes of the run
--   nodes, node_beats, node_ends
--               hash  node id -> JSON; zset node id -> last heartbeat; zset node id -> until when it is listed
--   acts        hash  id of an act of a person -> its subject, NUL, bytes
--   act_ids     zset  the ids of all acts, which sort by time
--   acts_about  zset  subject, NUL and id of all acts
--   m:          hash  `m:<level, kind, time>`: name -> counts, as places and numbers in turn (MessagePack)
--   meta        hash  schema, shards, made (when this was written: a store that lost all its data gets a new time)
--   shift       text  microseconds by which a test has moved the clock
--   wake, ends  text  number of wake-ups so far, and of announced ends; also the pub/sub channels of these names
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
