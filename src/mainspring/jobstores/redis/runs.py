"""The runs of the Redis store, and its service verbs."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from heapq import nlargest, nsmallest
from operator import attrgetter
from typing import Any, Final, TypeVar

import msgspec

from mainspring.core.insight.acts import MOST_ACTS
from mainspring.core.insight.metrics import Tally
from mainspring.core.instants import SECOND
from mainspring.core.lanes import Want, queue_of
from mainspring.core.run import UNFINISHED, Run, Status
from mainspring.core.waiting.gates import QUEUE_GATE
from mainspring.errors import ConfigurationError, StoreUnavailable
from mainspring.jobstores.base import CHANGES, ENDS, Answers, Hold, NodeInfo, QueueInfo, RunQuery, RunStanding, Stats
from mainspring.jobstores.records.acts import ActRow
from mainspring.jobstores.records.rows import (
    ALTERED,
    FINAL_VALUES,
    LATEST_INSTANT,
    BeatRow,
    RunRow,
    SettleRow,
    run_damage,
)
from mainspring.jobstores.records.store import RecordStore
from mainspring.jobstores.redis.shards import Shard, Shards
from mainspring.jobstores.redis.tallies import add_tallies, find_tallies
from mainspring.jobstores.redis.waiting import Subscriptions
from mainspring.jobstores.redis.wire import (
    NO_CLAIM,
    Claim,
    age,
    checksum,
    instant,
    is_plain,
    new_run,
    outcome,
    raw,
    restored_outbox,
    run_row,
    run_rows,
    texts,
)

__all__ = ["RedisRuns"]

Placed = TypeVar("Placed", RunRow, Run)

log = logging.getLogger("mainspring.jobstores.redis")

SCRIPT_RUNS: Final = 1000
"""One script call handles this many runs, in a few milliseconds of the server's time."""
NEW_RUNS_PER_SCRIPT: Final = 250
"""One script call adds this many runs; several calls are under way at once."""
SWEEP_PAGE_RECORDS: Final = 200
"""One script call of a sweep reads this many records, in about a millisecond of the server's time."""
SWEEP_PAGE_CALLS: Final = 20
"""One script call of a sweep reads this many calls, which may be big."""
SWEEP_PAGES: Final = 50
"""One sweep reads this many pages."""
MOST_EDGES: Final = 1000
"""At most this many runs come before a run, and after it."""
FIND_LOOKS_PER_SCRIPT: Final = 2000
"""One call reads this many runs to find matching ones."""
OUTBOX_AFTER_US: Final = 5 * SECOND
"""Another node delivers a follow-up that has been on its way to another shard for this long."""
_UNKNOWN: Final = 2
_INDEXED: Final = frozenset([Status.FAILED, Status.CANCELLED, Status.MISSED, Status.BROKEN])
_RUN_AT: Final = attrgetter("run_at")
_PRIORITY: Final = attrgetter("priority")
_HOLDS: Final = (Hold.LOST, Hold.HELD, Hold.CANCEL, Hold.LOST)


class RedisRuns(RecordStore):
    """The verbs about runs, each a script call on one or more shards."""

    _shards: Shards
    _searched: list[Shard]
    _subscriptions: Subscriptions
    _ends: Subscriptions
    keep_runs: int
    _swept: dict[Shard, tuple[str, str, str]]
    """Where the next sweep of a shard continues."""

    @abstractmethod
    def _call(self, shard: Shard, script: str, args: Sequence[Any] = (), *, reads: bool = False) -> Any:
        """Run a script on a shard."""

    @abstractmethod
    def _stream(self, shard: Shard, script: str, batches: Iterable[Sequence[Any]]) -> list[Any]:
        """Run a script several times; make the next arguments while it runs."""

    # -- runs --------------------------------------------------------------------------------------------------

    def _add_run_rows(self, rows: Sequence[RunRow]) -> Answers[str | None]:
        if len(rows) == 1 and is_plain(rows[0]):
            run_id = rows[0].id
            self._call(self._shards.of_run(run_id), "add_run", new_run(rows[0]))
            return Answers([run_id])
        return self._add_several(rows)

    def _add_several(self, rows: Sequence[RunRow]) -> Answers[str | None]:
        refused: list[str] = []

        def act(shard: Shard, part: Sequence[RunRow]) -> list[str | None]:
            # Pack the next runs while the server inserts these. Runs after one another come or do not come together.
            size = len(part) if any(row.after for row in part) else NEW_RUNS_PER_SCRIPT
            chunks = [part[first : first + size] for first in range(0, len(part), size)]
            replies = self._stream(shard, "add_runs", ([[new_run(row) for row in chunk]] for chunk in chunks))
            ids: list[str | None] = []
            for chunk, reply in zip(chunks, replies, strict=True):
                if len(reply) == 1:
                    raise ValueError(f"more than {MOST_EDGES:,} runs would come after the run {reply[0].decode()!r}")
                ids += [None if each is None else each.decode() for each in reply[0]] or [row.id for row in chunk]
                refused.extend(texts(reply[1]))
            self._shards.found([run_id for run_id in ids if run_id is not None], shard)
            return ids

        for row in rows:
            if len(row.after) > MOST_EDGES:
                raise ValueError(f"the run {row.id!r} would come after more than {MOST_EDGES:,} runs")
        homes = self._homes(rows) if len(self._shards.all) > 1 and any(row.after for row in rows) else {}
        for row in rows if homes else ():
            if any(homes.get(edge.id, homes[row.id]) is not homes[row.id] for edge in row.after):
                raise ValueError(
                    f"the run {row.id!r} comes after runs of another shard, and no step covers two of them"
                )
        home = lambda row: homes.get(row.id) or self._shards.of_new_run(row.id, row.gate or row.unique)  # noqa: E731
        batch = len(rows) if homes else SCRIPT_RUNS
        return Answers(self._shards.ask(rows, home, act, batch), refused)

    def far_edges(self, runs: Sequence[Run]) -> list[tuple[str, str]]:
        if len(self._shards.all) == 1:
            return []
        homes = self._homes(runs)
        edges = ((edge.id, run.id) for run in runs for edge in run.after)
        return [(before, after) for before, after in edges if before in homes and homes[before] is not homes[after]]

    def _homes(self, runs: Sequence[Placed]) -> dict[str, Shard]:
        """Return the shards of runs and of those that they come after, as far as these are there.

        Runs that come after one another are together: with their key or gate, else with the first that they come after.
        """
        outside = list(dict.fromkeys(edge.id for run in runs for edge in run.after).keys() - {run.id for run in runs})
        there = [run_id for run_id, known in zip(outside, self.standings(outside), strict=True) if known is not None]
        homes: dict[str, Shard] = {run_id: self._shards.of_run(run_id) for run_id in there}
        for group in _connected(runs):
            keyed = {
                self._shards.of_job(word): run for run in group for word in (run.unique, run.gate) if word is not None
            }
            if len(keyed) > 1:
                raise ValueError(
                    f"the run {group[-1].id!r} and those before it have keys or limits of different shards, and no "
                    "step covers two of them; give all of them the same shard="
                )
            placed = (homes[edge.id] for run in group for edge in run.after if edge.id in homes)
            shard = next(iter(keyed), None) or next(placed, None) or self._shards.of_run(group[0].id)
            homes.update((run.id, shard) for run in group)
        return homes

    def _claim_rows(
        self, wants: Sequence[Want], node: str, token: str, lease: float
    ) -> tuple[int, list[RunRow], int | None]:
        if len(self._shards.all) == 1:
            return self._claim_from(self._shards.all[0], wants, node, token, lease)
        return self._claim_from_several(wants, node, token, lease)

    def _claim_from(
        self, shard: Shard, wants: Sequence[Want], node: str, token: str, lease: float
    ) -> tuple[int, list[RunRow], int | None]:
        args = [[[list(lanes), limit] for lanes, limit in wants], node, token, int(lease * SECOND)]
        now, next_at, until, reply, altered = self._call(shard, "claim", args)
        if altered:
            self._set_runs_aside(shard, altered)
        claim = NO_CLAIM if until is None else (token, node, until)
        return now, _by_urgency(self._seen(shard, reply, claim)), instant(next_at)

    def _claim_from_several(
        self, wants: Sequence[Want], node: str, token: str, lease: float
    ) -> tuple[int, list[RunRow], int | None]:
        """Look into every shard, then claim from those with the most urgent runs; a repeated claim skips the look."""
        now, times = 0, {}
        runs: list[RunRow] = []
        shares: dict[Shard, Counter[int]] = {}  # by the number of the want: how many runs to claim
        due: list[list[tuple[bytes, int, Shard]]] = [[] for _ in wants]  # the number keeps it from comparing shards
        asked = [[list(lanes), limit] for lanes, limit in wants]
        for number, shard in enumerate(self._shards.turn()):
            at, next_at, urgencies, held = self._call(shard, "peek", [asked, token])
            now, times[shard] = max(now, at), instant(next_at)
            if held[0]:  # claim held runs again, too: replicas may not have them yet
                shares[shard] = Counter()
            for found, some in zip(due, urgencies, strict=True):
                found += [(urgency, number, shard) for urgency in some]
        if not shares:
            for want, (found, (_, limit)) in enumerate(zip(due, wants, strict=True)):
                for _, _, shard in nsmallest(limit, found):
                    shares.setdefault(shard, Counter())[want] += 1
        for shard, numbers in shares.items():
            part = [(lanes, numbers[want]) for want, (lanes, _) in enumerate(wants)]
            at, rows, times[shard] = self._claim_from(shard, part, node, token, lease)
            now = max(now, at)
            runs += rows
        return now, _by_urgency(runs), _earliest(times.values())

    # -- what was altered --------------------------------------------------------------------------------------

    def _set_altered_aside(self, run_ids: Sequence[str], job_ids: Sequence[str]) -> int:
        number: int = 0
        for run_id in run_ids:
            for shard in self._shards.all:
                number += self._set_runs_aside(shard, [run_id.encode("utf-8", "surrogateescape")])
        for job_id in job_ids:
            reason = f"bad_data: its state {ALTERED}"
            number += int(self._call(self._shards.of_job(job_id), "set_aside", [job_id, False, reason]))
        if not run_ids and not job_ids:
            number += sum(self._sweep(shard) for shard in self._shards.all)
        return number

    def _sweep(self, shard: Shard) -> int:
        """Check some jobs and runs; the next sweep continues after them."""
        number = 0
        for turn in range(SWEEP_PAGES):
            runs, lost, jobs = self._swept.get(shard, ("0", "0", "0"))
            jobs_after, altered, jobs_mended = self._call(shard, "sweep_jobs", [jobs, SWEEP_PAGE_RECORDS])
            for job_id in altered:
                number += int(self._call(shard, "set_aside", [raw(job_id), False, f"bad_data: its state {ALTERED}"]))
            runs_after, ids, mended = self._call(shard, "sweep", ["created", runs, SWEEP_PAGE_RECORDS, turn == 0])
            lost_after, others, found = self._call(shard, "sweep", ["calls", lost, SWEEP_PAGE_CALLS, False])
            number += jobs_mended + mended + found + self._set_runs_aside(shard, [*ids, *others])
            self._swept[shard] = runs_after.decode(), lost_after.decode(), jobs_after.decode()
            if self._swept[shard] == ("0", "0", "0"):
                break
        return number

    def _set_runs_aside(self, shard: Shard, ids: Sequence[bytes]) -> int:
        """Replace altered runs by broken ones that say so and keep the old bytes."""
        number: int = 0
        for run_id in ids:
            found = self._call(shard, "set_run_aside", [raw(run_id)], reads=True)
            if found is None:
                continue
            now = self.beat()
            old = run_row(run_id, found[0])
            damage = run_damage(old) or f"its record {ALTERED}, so that it is not where it belongs"
            log.error("run %r is set aside: %s", old.id, damage)
            row = RunRow(
                id=run_id.decode(),
                call=b"",
                state=found[1],
                queue=old.queue,
                lane=old.lane,
                status=old.status,
                run_at=now,
                created_at=old.created_at if 0 < old.created_at <= LATEST_INSTANT else now,
                keep=0,
            )
            broken = self._packer.broken_row(row, f"bad_data: {damage}", now)
            number += int(self._call(shard, "set_run_aside", [raw(run_id), raw(found[1]), new_run(broken)]))
        return number

    def _seen(self, shard: Shard, reply: Sequence[Sequence[Any]], claim: Claim = NO_CLAIM) -> list[RunRow]:
        rows = run_rows(reply, claim)
        if len(self._shards.all) > 1:
            self._shards.found([row.id for row in rows], shard)
        return rows

    def _extend_rows(self, beats: Sequence[BeatRow], lease: float) -> list[Hold]:
        def act(shard: Shard, part: Sequence[BeatRow]) -> list[int]:
            args = [
                int(lease * SECOND),
                [[beat.run_id, beat.token, raw(beat.live) if beat.live else False] for beat in part],
            ]
            answers: list[int] = self._call(shard, "extend", args)
            return answers

        answers = self._shards.ask_for_runs(beats, lambda beat: beat.run_id, act, SCRIPT_RUNS, unknown=3)
        return [_HOLDS[answer] for answer in answers]

    def _settle_rows(self, outcomes: Sequence[SettleRow]) -> Answers[bool]:
        refused: list[str] = []

        def act(shard: Shard, part: Sequence[SettleRow]) -> list[int]:
            away: dict[int, list[RunRow]] = {}
            plain = []
            for number, step in enumerate(part):
                if step.then:
                    here, away[number] = self._split(step.then, shard)
                    plain.append(outcome(step, here, away[number]))
                else:
                    plain.append(outcome(step))
            answers: list[int]
            answers, ended = self._call(shard, "settle", [plain])
            refused.extend(texts(ended))
            self._deliver(shard, [run for number, some in away.items() if answers[number] == 1 for run in some])
            return answers

        answers = self._shards.ask_for_runs(outcomes, lambda step: step.run.id, act, SCRIPT_RUNS, unknown=_UNKNOWN)
        return Answers([answer == 1 for answer in answers], refused)

    def _split(self, runs: list[RunRow], shard: Shard) -> tuple[list[RunRow], list[RunRow]]:
        """Separate the runs of one shard from those of others."""
        if len(self._shards.all) == 1:
            return runs, []
        parts: tuple[list[RunRow], list[RunRow]] = ([], [])
        for run in runs:
            parts[not run.after and self._shards.of_new_run(run.id, run.unique) is not shard].append(run)
        return parts

    def _deliver(self, shard: Shard, runs: Sequence[RunRow]) -> None:
        """Add follow-ups in their own shards; one that is lost on the way stays in the outbox of its parent's shard."""
        if not runs:
            return
        try:
            self._add_run_rows(runs)
            self._call(shard, "clear_outbox", [[run.id for run in runs]])
        except StoreUnavailable as error:  # the settle stands; `prune` delivers them later
            log.warning("%d follow-up runs wait for another shard: %s", len(runs), error)

    def _lapsed_rows(self, limit: int, skip: int) -> list[RunRow]:
        rows: list[RunRow] = []
        if not skip:  # otherwise keep the order of the shards, because `skip` counts through them
            self._searched = self._shards.turn()
        for shard in self._searched:
            if len(rows) < limit:
                skipped, found = self._call(shard, "lapsed", [limit - len(rows), skip])
                skip -= skipped
                rows += self._seen(shard, found)
        return rows

    def _run_rows(self, run_ids: Sequence[str]) -> list[RunRow]:
        rows: dict[str, RunRow] = {}

        def act(shard: Shard, part: Sequence[str]) -> list[int]:
            rows.update((row.id, row) for row in run_rows(self._call(shard, "get_runs", [list(part)], reads=True)))
            return [1 if run_id in rows else _UNKNOWN for run_id in part]

        self._shards.ask_for_runs(
            list(dict.fromkeys(run_ids)), lambda run_id: run_id, act, SCRIPT_RUNS, unknown=_UNKNOWN
        )
        return list(rows.values())

    def standings(self, run_ids: Sequence[str]) -> list[RunStanding | None]:
        """Return the status of the run with each of these ids, or None."""
        found: dict[str, RunStanding] = {}

        def act(shard: Shard, part: Sequence[str]) -> list[int]:
            statuses, refused = self._call(shard, "standings", [list(part)], reads=True)
            for run_id, status, by in zip(part, statuses, refused, strict=True):
                with suppress(ValueError, AttributeError):  # it was altered, or is not there
                    found[run_id] = RunStanding(Status(status.decode()), by.decode() or None)
            return [1 if run_id in found else _UNKNOWN for run_id in part]

        ids = list(dict.fromkeys(run_ids))
        self._shards.ask_for_runs(ids, lambda run_id: run_id, act, SCRIPT_RUNS, unknown=_UNKNOWN)
        return [found.get(run_id) for run_id in run_ids]

    def _find_run_rows(self, query: RunQuery, after: Run | None, limit: int) -> list[RunRow]:
        start = None if after is None else _place(after)
        parts = _parts(query)
        rows = []
        for shard in self._shards.all:
            for statuses in parts:
                found: list[RunRow] = []
                cursor, more = start, True
                while more and len(found) < limit:
                    _, cursor, part = self._find(shard, query, statuses, cursor, limit - len(found))
                    found += part
                    more = cursor is not None
                rows += found
        return nlargest(limit, rows, key=lambda row: (row.created_at, row.id))

    def made_behind(self, after: Run | None, number: int) -> int | None:
        """Ask each shard for the run that lies behind its part of so many; the newest of those counts."""
        start = False if after is None else raw(_place(after))
        args = [start, number // len(self._shards.all)]
        found = [self._call(shard, "made_behind", args, reads=True) for shard in self._shards.all]
        return max((at for each in found if (at := instant(each)) is not None), default=None)

    def _recent_run_rows(self, job_ids: Sequence[str], limit: int) -> list[list[RunRow]]:
        """Ask each shard for the runs of many jobs at a time."""
        found: dict[str, list[RunRow]] = {job_id: [] for job_id in job_ids}
        names, size = list(found), max(1, SCRIPT_RUNS // limit)
        for shard in self._shards.all:
            for first in range(0, len(names), size):
                some = names[first : first + size]
                args = [some, [checksum(job_id) for job_id in some], limit]
                for job_id, reply in zip(some, self._call(shard, "recent_runs", args, reads=True), strict=True):
                    found[job_id] += run_rows(reply)
        return [nlargest(limit, found[job_id], key=lambda row: (row.created_at, row.id)) for job_id in job_ids]

    def _find(
        self, shard: Shard, query: RunQuery, statuses: Sequence[Status], cursor: bytes | None, limit: int | None
    ) -> tuple[int, bytes | None, list[RunRow]]:
        """Find or count runs; the cursor says where to continue if the call ended before it had read all."""
        args = _find_args(query, statuses, cursor, limit)
        count, following, reply = self._call(shard, "find_runs", args, reads=True)
        return count, following, run_rows(reply)

    def cancel(self, run_ids: Sequence[str]) -> list[bool]:
        """Mark running runs to be stopped; their holder learns it from `extend`."""
        return [answer == 1 for answer in self._each("cancel", run_ids)]

    def delete_runs(self, run_ids: Sequence[str]) -> int:
        """Delete finished runs; return how many."""
        return self._each("delete_runs", run_ids).count(1)

    def _each(self, script: str, run_ids: Sequence[str]) -> list[int]:
        def act(shard: Shard, part: Sequence[str]) -> list[int]:
            answers: list[int] = self._call(shard, script, [list(part)])
            return answers

        return self._shards.ask_for_runs(list(run_ids), lambda run_id: run_id, act, SCRIPT_RUNS, unknown=_UNKNOWN)

    def prune(self, limit: int = 1000) -> int:
        """Delete up to `limit` finished runs that are past their retention by age or count; broken ones are kept."""
        kept = -(-self.keep_runs // len(self._shards.all))
        count = 0
        for shard in self._shards.turn():
            if len(self._shards.all) > 1:
                self._deliver(shard, restored_outbox(self._call(shard, "take_outbox", [OUTBOX_AFTER_US, SCRIPT_RUNS])))
            if count < limit:
                count += int(self._call(shard, "prune", [limit - count, kept]))
        return count

    # -- what people did, in the first shard --------------------------------------------------------------------

    def _add_act_rows(self, rows: Sequence[ActRow], oldest: str) -> None:
        plain = [[row.id, row.about, raw(row.frame)] for row in rows]
        self._call(self._shards.all[0], "add_acts", [plain, MOST_ACTS, oldest])

    def _find_act_rows(self, about: str | None, after: str | None, limit: int) -> list[ActRow]:
        args = [about or False, after or False, limit]
        ids, said = self._call(self._shards.all[0], "find_acts", args, reads=True)
        found = [(act_id.decode(), *each.partition(b"\0")[::2]) for act_id, each in zip(ids, said, strict=True) if each]
        return [ActRow(act_id, thing.decode("utf-8", "replace"), frame) for act_id, thing, frame in found]

    def tallies(
        self,
        new: Sequence[Tally] = (),
        *,
        kind: str = "all",
        name: str | None = None,
        level: int = 0,
        since: int = 0,
        until: int = 0,
    ) -> list[Tally]:
        """Add counts in the first shard, then return tallies."""
        call = partial(self._call, self._shards.all[0])
        if new:
            add_tallies(call, new)
        return find_tallies(call, kind, name, level, since, until) if since < until else []

    # -- service -----------------------------------------------------------------------------------------------

    def beat(self, node: NodeInfo | None = None, ttl: float = 0.0) -> int:
        """Announce a node or remove it; return the store's now, by the server of the first shard."""
        if node is None:
            return int(self._call(self._shards.all[0], "beat", reads=True))
        said = [node.id, int(ttl * SECOND), msgspec.json.encode(node).decode()]
        return int(self._call(self._shards.all[0], "beat", said))

    def nodes(self) -> list[NodeInfo]:
        """Return the living nodes; an altered record is written again with the next heartbeat."""
        found = []
        for said, beat_at in zip(*self._call(self._shards.all[0], "nodes", reads=True), strict=True):
            if said is not None and beat_at is not None:
                with suppress(msgspec.MsgspecError, ValueError, OverflowError):
                    node = msgspec.json.decode(said, type=NodeInfo)
                    found.append(msgspec.structs.replace(node, beat_at=int(float(beat_at))))
        return sorted(found, key=lambda node: node.id)

    def set_gate(self, name: str, allowed: int | None) -> None:
        """Let at most `allowed` runs of a gate run at once; the limit of a queue is split over the shards."""
        if not name.startswith(QUEUE_GATE):
            shard = self._shards.of_job(name)
            self._call(shard, "set_gate", [False, name, False if allowed is None else allowed])
            return
        shards, queue = self._shards.all, name.removeprefix(QUEUE_GATE)
        if allowed is not None and 0 < abs(allowed) < len(shards):
            raise ConfigurationError(
                f"a queue in a store of {len(shards)} shards has a limit of at least {len(shards)}, not "
                f"{abs(allowed)}: each shard hands out its part"
            )
        for number, shard in enumerate(shards):
            part: int | bool = False
            if allowed is not None:
                whole, rest = divmod(abs(allowed), len(shards))
                part = (whole + (number < rest)) * (1 if allowed > 0 else -1)
            self._call(shard, "set_gate", [True, queue, part])

    def stats(self, query: RunQuery | None = None) -> Stats:
        """Count the contents of the shards, or matching runs; runs of a job or group are read one by one."""
        if query is not None:
            return Stats(matching=sum(self._count(shard, query) for shard in self._shards.all))
        queues: dict[str, QueueInfo] = {}
        limits: dict[str, int] = {}
        totals, jobs = dict.fromkeys(sorted(FINAL_VALUES), 0), 0
        for shard in self._shards.all:
            known, pairs, found, numbers = self._call(shard, "stats", reads=True)
            jobs += known
            limits |= dict(zip((name.decode("utf-8", "replace") for name in numbers[::2]), numbers[1::2], strict=True))
            for status, count in zip(pairs[::2], pairs[1::2], strict=True):
                if status.decode("utf-8", "replace") in totals and count.isdigit():
                    totals[status.decode()] += int(count)
            for queue in found:
                name = queue_of(queue[0].decode("utf-8", "replace"))
                queues[name] = _sum(queues.get(name, QueueInfo(name=name)), *queue[1:])
        ordered = [queues[name] for name in sorted(queues)]
        return Stats(queues=ordered, totals=totals, jobs=jobs, limits=dict(sorted(limits.items())))

    def _count(self, shard: Shard, query: RunQuery) -> int:
        total, cursor, more = 0, None, True
        while more:
            count, cursor, _ = self._find(shard, query, query.status, cursor, None)
            total += count
            more = cursor is not None and (query.cap is None or total <= query.cap)
        return total

    def wait(self, cursor: int, timeout: float, topic: str = CHANGES) -> int:
        """Sleep until a change since `cursor` may concern a loop, or a run has ended, or for `timeout` seconds."""
        if topic == ENDS:
            if timeout > 0:
                return self._ends.wait(self._shards.ends, cursor, timeout)
            self._ends.close()
            return cursor
        return self._subscriptions.wait(self._shards.channels, cursor, timeout)

    def shift_clock(self, seconds: float) -> None:
        """Move the store's clock for a test."""
        for shard in self._shards.all:
            self._call(shard, "shift_clock", [int(seconds * SECOND)])


def _connected(rows: Sequence[Placed]) -> list[list[Placed]]:
    """Return the runs in groups that edges connect, without those that no edge touches."""
    group_of: dict[str, list[Placed]] = {}
    known = {row.id: row for row in rows}
    for row in rows:
        mine = group_of.setdefault(row.id, [row])
        for edge in row.after:
            if edge.id not in known:
                continue
            other = group_of.setdefault(edge.id, [known[edge.id]])
            if other is not mine:
                mine, other = (mine, other) if len(mine) >= len(other) else (other, mine)
                mine += other
                group_of.update((each.id, mine) for each in other)
    groups = {id(group): group for group in group_of.values()}
    return [group for group in groups.values() if len(group) > 1 or group[0].after]


def _parts(query: RunQuery) -> list[tuple[Status, ...]]:
    """Divide the statuses of a query into those that are found together.

    Runs that failed, were cancelled and so on have an index for each of these; unfinished ones are found where they
    wait or run. Only runs that succeeded, which are most, have nothing but their age.
    """
    indexed = query.job_id is query.group is query.after is query.gate is None
    if not indexed or not query.status or Status.SUCCEEDED in query.status:
        return [query.status]
    unfinished = tuple(status for status in UNFINISHED if status in query.status)
    return [(status,) for status in _INDEXED if status in query.status] + ([unfinished] if unfinished else [])


def _find_args(query: RunQuery, statuses: Sequence[Status], cursor: bytes | None, limit: int | None) -> list[Any]:
    """Return what the script `find_runs` takes; without a limit it only counts."""
    return [
        [status.value for status in statuses or Status],
        statuses[0].value if len(statuses) == 1 and statuses[0] in _INDEXED else False,
        *(False if value is None else value for value in (query.queue, query.group, query.job_id, limit)),
        False if cursor is None else raw(cursor),
        FIND_LOOKS_PER_SCRIPT,
        limit is None,
        query.job_id is not None and checksum(query.job_id),
        False if query.after is None else query.after,
        False if query.gate is None else query.gate,
        False if query.since is None else age(query.since),
    ]


def _place(run: Run) -> bytes:
    """Return the place of a run in the indexes by age."""
    return f"{age(run.created_at)}{run.id}".encode()


def _sum(
    queue: QueueInfo, waiting: int, delayed: int, blocked: int, running: int, limit: int | None, oldest: bytes | None
) -> QueueInfo:
    """Add a lane of a queue in one shard to the others."""
    ages = [at for at in (instant(oldest), queue.oldest_at) if at is not None]
    return QueueInfo(
        name=queue.name,
        waiting=queue.waiting + waiting,
        delayed=queue.delayed + delayed,
        blocked=queue.blocked + blocked,
        running=queue.running + running,
        limit=queue.limit if limit is None else limit + (queue.limit or 0),
        oldest_at=min(ages, default=None),
    )


def _by_urgency(rows: list[RunRow]) -> list[RunRow]:
    rows.sort(key=_RUN_AT)
    rows.sort(key=_PRIORITY, reverse=True)  # which keeps the order of equals
    return rows


def _earliest(times: Iterable[int | None]) -> int | None:
    return min((at for at in times if at is not None), default=None)
