"""Find, count and delete runs in Redis."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from heapq import nlargest
from typing import Any, Final

from mainspring.core.lanes import queue_of
from mainspring.core.run import UNFINISHED, Run, Status
from mainspring.jobstores.base import QueueInfo, RunQuery, RunStanding, Stats
from mainspring.jobstores.records.rows import FINAL_VALUES, RunRow
from mainspring.jobstores.redis.calls import RedisCalls
from mainspring.jobstores.redis.shards import SCRIPT_RUNS, UNKNOWN, Shard
from mainspring.jobstores.redis.wire import age, checksum, instant, or_false, raw, run_rows

__all__ = ["RedisFinding"]

FIND_LOOKS_PER_SCRIPT: Final = 2000
"""One script call examines at most this many runs to find matching ones."""
_INDEXED: Final = frozenset([Status.FAILED, Status.CANCELLED, Status.MISSED, Status.BROKEN])


class RedisFinding(RedisCalls):
    """The verbs that find, count, cancel and delete runs."""

    def _run_rows(self, run_ids: Sequence[str]) -> list[RunRow]:
        rows: dict[str, RunRow] = {}

        def act(shard: Shard, part: Sequence[str]) -> list[int]:
            rows.update((row.id, row) for row in run_rows(self._call(shard, "get_runs", [list(part)], reads=True)))
            return [1 if run_id in rows else UNKNOWN for run_id in part]

        self._shards.ask_for_runs(list(dict.fromkeys(run_ids)), act)
        return list(rows.values())

    def standings(self, run_ids: Sequence[str]) -> list[RunStanding | None]:
        found: dict[str, RunStanding] = {}

        def act(shard: Shard, part: Sequence[str]) -> list[int]:
            statuses, refused = self._call(shard, "standings", [list(part)], reads=True)
            for run_id, status, by in zip(part, statuses, refused, strict=True):
                with suppress(ValueError, AttributeError):  # the run was altered, or is not there
                    found[run_id] = RunStanding(Status(status.decode()), by.decode() or None)
            return [1 if run_id in found else UNKNOWN for run_id in part]

        self._shards.ask_for_runs(list(dict.fromkeys(run_ids)), act)
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
        """Ask each shard for the age of its run that lies its share of `number` behind; return the latest time."""
        start = False if after is None else raw(_place(after))
        args = [start, number // len(self._shards.all)]
        found = [self._call(shard, "made_behind", args, reads=True) for shard in self._shards.all]
        return max((at for each in found if (at := instant(each)) is not None), default=None)

    def _recent_run_rows(self, job_ids: Sequence[str], limit: int) -> list[list[RunRow]]:
        """Ask each shard about many jobs in one call."""
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
        """Find or count runs; return the number, the cursor to continue from (None at the end), and the rows."""
        args = _find_args(query, statuses, cursor, limit)
        count, following, reply = self._call(shard, "find_runs", args, reads=True)
        return count, following, run_rows(reply)

    def cancel(self, run_ids: Sequence[str]) -> list[bool]:
        return [answer == 1 for answer in self._each("cancel", run_ids)]

    def delete_runs(self, run_ids: Sequence[str]) -> int:
        return self._each("delete_runs", run_ids).count(1)

    def _each(self, script: str, run_ids: Sequence[str]) -> list[int]:
        def act(shard: Shard, part: Sequence[str]) -> list[int]:
            answers: list[int] = self._call(shard, script, [list(part)])
            return answers

        return self._shards.ask_for_runs(run_ids, act)

    def stats(self, query: RunQuery | None = None) -> Stats:
        """Count the contents of the shards, or the matching runs.

        Runs of a job, a group, a gate or a predecessor are read one by one; all others are counted already.
        """
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


def _parts(query: RunQuery) -> list[tuple[Status, ...]]:
    """Divide the statuses of a query into groups that one index can find.

    Each final status but `succeeded` has its own index. The script finds unfinished runs where they wait or run. Runs
    that succeeded, which are most, are indexed by age only.
    """
    indexed = query.job_id is query.group is query.after is query.gate is None
    if not indexed or not query.status or Status.SUCCEEDED in query.status:
        return [query.status]
    unfinished = tuple(status for status in UNFINISHED if status in query.status)
    return [(status,) for status in _INDEXED if status in query.status] + ([unfinished] if unfinished else [])


def _find_args(query: RunQuery, statuses: Sequence[Status], cursor: bytes | None, limit: int | None) -> list[Any]:
    """Return the arguments of the script `find_runs`; without a limit it only counts."""
    return [
        [status.value for status in statuses or Status],
        statuses[0].value if len(statuses) == 1 and statuses[0] in _INDEXED else False,
        *map(or_false, (query.queue, query.group, query.job_id, limit)),
        False if cursor is None else raw(cursor),
        FIND_LOOKS_PER_SCRIPT,
        limit is None,
        query.job_id is not None and checksum(query.job_id),
        or_false(query.after),
        or_false(query.gate),
        False if query.since is None else age(query.since),
    ]


def _place(run: Run) -> bytes:
    """Return the place of a run in the indexes by age."""
    return f"{age(run.created_at)}{run.id}".encode()


def _sum(
    queue: QueueInfo, waiting: int, delayed: int, blocked: int, running: int, limit: int | None, oldest: bytes | None
) -> QueueInfo:
    """Add the numbers of one lane in one shard to those of its queue."""
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
