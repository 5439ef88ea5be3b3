"""The runs of the Redis store, and what loops and people ask of it."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import nlargest, nsmallest
from typing import Any, Final

import msgspec

from mainspring.clock import SECOND
from mainspring.errors import StoreUnavailable
from mainspring.jobstores._redis_link import Link
from mainspring.jobstores._redis_shards import Shard, Shards
from mainspring.jobstores._redis_wire import Bytes, head, outbox_rows, run_rows, texts
from mainspring.jobstores.base import Hold, NodeInfo, QueueInfo, RunQuery
from mainspring.jobstores.records import RecordStore
from mainspring.jobstores.rows import FINAL_VALUES, BeatRow, RunRow, SettleRow
from mainspring.run import Run, Status

__all__ = ["RedisRuns"]

log = logging.getLogger("mainspring.jobstores.redis")

BATCH: Final = 1000
"""Runs in one script call: a few milliseconds of the server's time."""
LOOKED_AT: Final = 2000
"""Runs of a job or group that one call looks through for those that match."""
OUTBOX_AFTER: Final = 5 * SECOND
"""How long a follow-up has been on its way to another shard before somebody else delivers it."""
_UNKNOWN: Final = 2
_HOLDS: Final = (Hold.LOST, Hold.HELD, Hold.CANCEL, Hold.LOST)


class RedisRuns(RecordStore):
    """The runs of a store whose shards are scripts away."""

    _shards: Shards
    _link: Link
    _keep_runs: int

    @abstractmethod
    def _call(
        self, shard: Shard, script: str, args: Sequence[Any] = (), values: Sequence[bytes] = (), *, reads: bool = False
    ) -> Any:
        """Run a script on a shard."""

    # -- runs --------------------------------------------------------------------------------------------------

    def _add_run_rows(self, rows: Sequence[RunRow]) -> list[str]:
        def act(shard: Shard, part: Sequence[RunRow]) -> list[str]:
            values = Bytes()
            ids = texts(self._call(shard, "add_runs", [[values.run(row) for row in part]], values.values))
            for run_id in ids:
                self._shards.found(run_id, shard)
            return ids

        return self._shards.ask(rows, lambda row: self._shards.of_new_run(row.id, row.unique), act, BATCH)

    def _claim_rows(
        self, lanes: Sequence[str], node: str, token: str, limit: int, lease: float
    ) -> tuple[int, list[RunRow], int | None]:
        if len(self._shards.all) == 1:
            args = [list(lanes), node, token, limit, int(lease * SECOND)]
            now, next_at, reply = self._call(self._shards.all[0], "claim", args)
            return now, _by_urgency(run_rows(reply)), next_at
        return self._claim_from_several(list(lanes), node, token, limit, lease)

    def _claim_from_several(
        self, lanes: list[str], node: str, token: str, limit: int, lease: float
    ) -> tuple[int, list[RunRow], int | None]:
        """Look into every shard, then claim from those that have the most urgent runs, unless the claim is repeated."""
        now, times = 0, {}
        held: list[RunRow] = []
        due: list[tuple[bytes, int, Shard]] = []  # the number keeps shards from being compared
        for shard in self._shards.turn():
            at, times[shard], urgencies, reply = self._call(shard, "peek", [lanes, token, limit])
            now = max(now, at)
            held += self._seen(shard, reply)
            due += [(urgency, len(due) + index, shard) for index, urgency in enumerate(urgencies)]
        if held:
            return now, _by_urgency(held), _earliest(times.values())
        shares = Counter(shard for _, _, shard in nsmallest(limit, due))
        for shard, share in shares.items():
            at, times[shard], reply = self._call(shard, "claim", [lanes, node, token, share, int(lease * SECOND)])
            now = max(now, at)
            held += self._seen(shard, reply)
        return now, _by_urgency(held), _earliest(times.values())

    def _seen(self, shard: Shard, reply: Sequence[Sequence[Any]]) -> list[RunRow]:
        rows = run_rows(reply)
        for row in rows:
            self._shards.found(row.id, shard)
        return rows

    def _extend_rows(self, beats: Sequence[BeatRow], lease: float) -> list[Hold]:
        def act(shard: Shard, part: Sequence[BeatRow]) -> list[int]:
            args = [int(lease * SECOND), [[beat.run_id, beat.token] for beat in part]]
            answers: list[int] = self._call(shard, "extend", args, [beat.live or b"" for beat in part])
            return answers

        answers = self._shards.ask_for_runs(beats, lambda beat: beat.run_id, act, BATCH, unknown=3)
        return [_HOLDS[answer] for answer in answers]

    def _settle_rows(self, outcomes: Sequence[SettleRow]) -> list[bool]:
        def act(shard: Shard, part: Sequence[SettleRow]) -> list[int]:
            values, plain, abroad = Bytes(), [], []
            for outcome in part:
                here, away = self._split(outcome.then, shard)
                row = outcome.run
                # What is called does not change and is not sent again.
                values.values += (b"", row.state, row.live or b"")
                number = len(values.values) - 1
                own = [row.id, number, head(row), outcome.condition.value, row.lease_until or 0]
                plain.append([*own, [values.run(run) for run in here], [values.run(run) for run in away]])
                abroad.append(away)
            answers: list[int] = self._call(shard, "settle", [plain], values.values)
            self._deliver(
                shard, [run for answer, away in zip(answers, abroad, strict=True) if answer == 1 for run in away]
            )
            return answers

        answers = self._shards.ask_for_runs(outcomes, lambda outcome: outcome.run.id, act, BATCH, unknown=_UNKNOWN)
        return [answer == 1 for answer in answers]

    def _split(self, runs: Sequence[RunRow], shard: Shard) -> tuple[list[RunRow], list[RunRow]]:
        """Part runs that live in a shard from those that live in others."""
        if len(self._shards.all) == 1:
            return list(runs), []
        parts: tuple[list[RunRow], list[RunRow]] = ([], [])
        for run in runs:
            parts[self._shards.of_new_run(run.id, run.unique) is not shard].append(run)
        return parts

    def _deliver(self, shard: Shard, runs: Sequence[RunRow]) -> None:
        """Add follow-ups in their own shards; what gets lost on the way waits in the outbox of their parents'."""
        if not runs:
            return
        try:
            self._add_run_rows(runs)
            self._call(shard, "clear_outbox", [[run.id for run in runs]])
        except StoreUnavailable as error:  # the settle stands; `prune` delivers them later
            log.warning("%d follow-up runs wait for another shard: %s", len(runs), error)

    def _expired_rows(self, limit: int) -> list[RunRow]:
        rows: list[RunRow] = []
        for shard in self._shards.turn():
            if len(rows) < limit:
                rows += self._seen(shard, self._call(shard, "expired", [limit - len(rows)], reads=True))
        return rows

    def _run_rows(self, run_ids: Sequence[str]) -> list[RunRow]:
        rows: dict[str, RunRow] = {}

        def act(shard: Shard, part: Sequence[str]) -> list[int]:
            rows.update((row.id, row) for row in run_rows(self._call(shard, "get_runs", [list(part)], reads=True)))
            return [1 if run_id in rows else _UNKNOWN for run_id in part]

        self._shards.ask_for_runs(list(dict.fromkeys(run_ids)), lambda run_id: run_id, act, BATCH, unknown=_UNKNOWN)
        return list(rows.values())

    def _find_run_rows(self, query: RunQuery, after: Run | None, limit: int) -> list[RunRow]:
        rows = []
        start = (False, False) if after is None else (after.created_at, after.id)
        for shard in self._shards.all:
            found: list[RunRow] = []
            cursor: tuple[Any, Any] | None = start
            while cursor is not None and len(found) < limit:
                _, cursor, part = self._find(shard, query, cursor, limit - len(found), counting=False)
                found += part
            rows += found
        return nlargest(limit, rows, key=lambda row: (row.created_at, row.id))

    def count_runs(self, query: RunQuery) -> int:
        """Return how many runs match; those of a job or group that are also asked for by status are looked through."""
        total = 0
        for shard in self._shards.all:
            cursor: tuple[Any, Any] | None = (False, False)
            while cursor is not None:
                count, cursor, _ = self._find(shard, query, cursor, 0, counting=True)
                total += count
        return total

    def _find(
        self, shard: Shard, query: RunQuery, cursor: tuple[Any, Any], limit: int, *, counting: bool
    ) -> tuple[int, tuple[int, str] | None, list[RunRow]]:
        """Look for runs; the cursor is where to go on if the call ended before it had seen all."""
        named = [False if value is None else value for value in (query.queue, query.group, query.job_id)]
        statuses = [str(status) for status in query.status or Status]
        args = [statuses, *named, limit, *cursor, LOOKED_AT, counting]
        count, last_at, last_id, reply = self._call(shard, "find_runs", args, reads=True)
        following = None if last_id is None else (int(float(last_at)), last_id.decode())
        return count, following, run_rows(reply)

    def request_cancel(self, run_ids: Sequence[str]) -> list[bool]:
        """Mark running runs to be stopped; their holder learns it by `extend`."""
        return [answer == 1 for answer in self._each("request_cancel", run_ids)]

    def delete_runs(self, run_ids: Sequence[str]) -> int:
        """Delete finished runs; answer how many."""
        return self._each("delete_runs", run_ids).count(1)

    def _each(self, script: str, run_ids: Sequence[str]) -> list[int]:
        def act(shard: Shard, part: Sequence[str]) -> list[int]:
            answers: list[int] = self._call(shard, script, [list(part)])
            return answers

        return self._shards.ask_for_runs(list(run_ids), lambda run_id: run_id, act, BATCH, unknown=_UNKNOWN)

    def prune(self, limit: int = 1000) -> int:
        """Delete up to `limit` finished runs that are past their retention by age or count; broken ones are kept."""
        kept = -(-self._keep_runs // len(self._shards.all))
        count = 0
        for shard in self._shards.turn():
            if len(self._shards.all) > 1:
                self._deliver(shard, outbox_rows(self._call(shard, "take_outbox", [OUTBOX_AFTER, BATCH])))
            if count < limit:
                count += int(self._call(shard, "prune", [limit - count, kept]))
        return count

    # -- service -----------------------------------------------------------------------------------------------

    def beat(self, node: NodeInfo, ttl: float) -> None:
        """Announce a node; it is forgotten when it has been silent for `ttl` seconds."""
        self._call(self._shards.all[0], "beat", [node.id, int(ttl * SECOND)], [msgspec.json.encode(node)])

    def leave(self, node_id: str) -> None:
        """Take a node off the list."""
        self._call(self._shards.all[0], "leave", [node_id])

    def nodes(self) -> list[NodeInfo]:
        """Return the nodes that are alive."""
        found = [
            msgspec.structs.replace(msgspec.json.decode(said, type=NodeInfo), beat_at=int(float(beat_at)))
            for said, beat_at in zip(*self._call(self._shards.all[0], "nodes"), strict=True)
            if said is not None and beat_at is not None
        ]
        return sorted(found, key=lambda node: node.id)

    def queues(self) -> list[QueueInfo]:
        """Return the lanes that hold unfinished runs or are paused, by name."""
        lanes: dict[str, QueueInfo] = {}
        for shard in self._shards.all:
            for name, waiting, delayed, running, paused, oldest in self._call(shard, "queues"):
                lane = lanes.get(name.decode(), QueueInfo(name=name.decode()))
                ages = [at for at in (oldest, lane.oldest_at) if at is not None]
                lanes[lane.name] = QueueInfo(
                    name=lane.name,
                    waiting=lane.waiting + waiting,
                    delayed=lane.delayed + delayed,
                    running=lane.running + running,
                    paused=lane.paused or bool(paused),
                    oldest_at=min(ages, default=None),
                )
        return [lanes[name] for name in sorted(lanes)]

    def set_queue(self, name: str, *, paused: bool) -> None:
        """Pause or resume a lane, shard by shard."""
        for shard in self._shards.all:
            self._call(shard, "set_queue", [name, paused])

    def purge(self, name: str) -> int:
        """Cancel all pending runs of a lane, a batch at a time; answer how many."""
        total = 0
        for shard in self._shards.all:
            while count := int(self._call(shard, "purge", [name, BATCH])):
                total += count
        return total

    def counters(self) -> dict[str, int]:
        """Return how many runs have ever reached each final status, and how many jobs there are (`jobs`)."""
        totals = {**dict.fromkeys(sorted(FINAL_VALUES), 0), "jobs": 0}
        for shard in self._shards.all:
            jobs, pairs = self._call(shard, "counters", reads=True)
            totals["jobs"] += jobs
            for status, count in zip(pairs[::2], pairs[1::2], strict=True):
                totals[status.decode()] += int(count)
        return totals

    def wait(self, cursor: int, timeout: float) -> int:
        """Sleep until something that may interest a loop has changed since `cursor`, or for `timeout` seconds."""
        return self._link.wait(self._shards.channels, cursor, timeout)

    def server_time(self) -> int:
        """Return the store's now: that of the first shard's server."""
        return int(self._call(self._shards.all[0], "server_time", reads=True))

    def ping(self) -> bool:
        """Tell whether the store answers."""
        return self._link.ping()

    def shift_clock(self, seconds: float) -> None:
        """Move the store's clock for a test."""
        for shard in self._shards.all:
            self._call(shard, "shift_clock", [int(seconds * SECOND)])


def _by_urgency(rows: list[RunRow]) -> list[RunRow]:
    rows.sort(key=lambda row: (-row.priority, row.run_at))
    return rows


def _earliest(times: Iterable[int | None]) -> int | None:
    return min((at for at in times if at is not None), default=None)
