"""Runs by id, lane, token, unique key, gate and age: each write of a run files it under its new status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from msgspec.structs import replace

from mainspring.core.run import FINAL, Run, Status, is_local
from mainspring.core.waiting.gates import QUEUE_GATE
from mainspring.jobstores.base import QueueInfo
from mainspring.jobstores.memory.edges import EdgeTable
from mainspring.jobstores.memory.gates import GateTable
from mainspring.jobstores.memory.indexes import Entry, History, LaneIndex, QueueLimit, Record

__all__ = ["RunIndex"]

# Reading a member off its class takes three times as long in the hot loops.
_BLOCKED, _PENDING, _RUNNING, _BROKEN = Status.BLOCKED, Status.PENDING, Status.RUNNING, Status.BROKEN


class RunIndex:
    """The runs of the store and their indexes. `keep_for` is in microseconds."""

    def __init__(self, jobs: Mapping[str, Entry], keep_runs: int, keep_for: int) -> None:
        self.stirred = False  # a run can be claimed or should be stopped: wake sleeping loops
        self.ended = False  # a run has ended: wake the callers that wait for ends
        self.totals = dict.fromkeys(sorted(FINAL), 0)
        self._jobs = jobs
        self.keep_runs = keep_runs
        self._keep_for = keep_for
        self._numbers = count(1)
        self._records: dict[str, Record] = {}
        self._lanes: dict[str, LaneIndex] = {}
        self._held: dict[str | None, dict[str, Record]] = {}  # the running ones, by token
        self._unique: dict[str, str] = {}
        self._edges = EdgeTable(self._records)
        self._gates = GateTable(self._records)
        self._limits: dict[str, QueueLimit] = {}  # by queue, for the queues that have a limit
        self._blocked: dict[str, int] = {}  # the number of blocked runs by queue
        self._refused: list[str] = []  # the runs that the present call has refused
        self._history = History(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def get(self, run_id: str) -> Run | None:
        """Return a run, or None."""
        record = self._records.get(run_id)
        return None if record is None else record.run

    def all(self) -> list[Run]:
        """Return every run, in no order."""
        return [record.run for record in self._records.values()]

    def successors(self, run_id: str) -> list[Run]:
        """Return the runs that come after one, in no order."""
        return self._edges.successors(run_id)

    def members(self, gate: str) -> list[Run]:
        """Return the unfinished runs of a gate, in no order."""
        return self._gates.members(gate)

    def insert(self, run: Run, owner: Entry | None, now: int) -> bool:
        """Add an unfinished run unless its id is known, its unique key is taken or a predecessor does not exist."""
        if run.id in self._records or self._history.remembers(run.id, now):
            return False
        if run.after:
            judged = self._edges.judged(run, now, again=False)
            if judged is None or (run.unique is not None and run.unique in self._unique):
                return False
            run = judged
            self._edges.link(run)
            if run.refused is not None:
                self._refused.append(run.id)
        if run.unique is not None and self._unique.setdefault(run.unique, run.id) != run.id:
            return False
        if owner is not None:
            if run.counted:
                owner.unfinished += 1
            else:
                owner = None
        self._put(Record(run, owner), now)
        return True

    def delete(self, run_id: str, now: int) -> bool:
        """Delete a finished run."""
        record = self._records.get(run_id)
        if record is None or record.run.status not in FINAL:
            return False
        self._delete(record, now)
        return True

    def prune(self, limit: int, now: int) -> int:
        """Delete finished runs that are past their retention, and forget lanes with nothing in them."""
        deleted = 0
        for record in self._history.outdated(now, self._keep_for):
            deleted += self._delete_unless_pinned(record, now)
            if deleted >= limit:
                break
        for name in [name for name, lane in self._lanes.items() if lane.idle]:
            del self._lanes[name]
        self._gates.forget(now)
        return deleted

    def queues(self, now: int) -> list[QueueInfo]:
        """Describe the queues that hold unfinished runs or have a limit."""
        running: dict[str, int] = {}
        for held in self._held.values():
            for record in held.values():
                running[record.run.queue] = running.get(record.run.queue, 0) + 1
        lanes: dict[str, list[LaneIndex]] = {}
        for lane in self._lanes.values():
            lanes.setdefault(lane.queue, []).append(lane)
        names = lanes.keys() | running.keys() | self._blocked.keys() | self._limits.keys()
        queues = [
            _describe(
                name, lanes.get(name, ()), self._limits.get(name), running.get(name, 0), self._blocked.get(name, 0), now
            )
            for name in sorted(names)
        ]
        return [q for q in queues if q.waiting or q.delayed or q.blocked or q.running or q.limit is not None]

    def limits(self) -> dict[str, int]:
        """Return the numbers that were set for gates, except for those of queues."""
        return self._gates.numbers()

    def is_limited(self, queue: str) -> bool:
        """Return True if a queue is paused or has a limit."""
        return queue in self._limits and not is_local(queue)

    def set_gate(self, name: str, allowed: int | None, now: int) -> None:
        """Set the number of a gate or the limit of a queue, and let in as many parked runs as fit."""
        if name.startswith(QUEUE_GATE):
            self._set_limit(name.removeprefix(QUEUE_GATE), allowed)
        else:
            self._let_in(name, self._gates.set(name, allowed), now)

    def _set_limit(self, name: str, allowed: int | None) -> None:
        old = self._limits.pop(name, None)
        new = None
        if allowed is not None:
            held = (record for some in self._held.values() for record in some.values())
            new = self._limits[name] = QueueLimit(allowed, sum(record.run.queue == name for record in held))
        if old is not None and old.full and not (new is not None and new.full):
            self.stirred = True

    def _let_in(self, gate: str, number: int, now: int) -> None:
        """Let `number` parked runs of each lane try the gate again, at the tail of their lane."""
        for record in self._gates.parked(gate, number):
            self._write(record, replace(record.run, status=_PENDING, run_at=now), now)

    def _owner(self, run: Run) -> Entry | None:
        """Find the job that a run counts for: the job with its id, if it still is the same incarnation."""
        entry = None if run.job_id is None else self._jobs.get(run.job_id)
        if entry is None or not run.id.startswith(f"{run.job_id}@{entry.job.incarnation}@"):
            return None
        return entry

    def _write(self, record: Record, run: Run, now: int) -> None:
        """Replace a run by its next record: remove it from its index, and file it again."""
        old = record.run
        if old.gate is not None:
            self._gates.leave(record, run)
        if old.status is _RUNNING:
            held = self._held[old.token]
            del held[old.id]
            if not held:
                del self._held[old.token]
            if self._limits:
                self._count_running(old.queue, -1)
        elif old.status is _PENDING:
            self._lanes[old.lane].discard(record)
        elif old.status is _BLOCKED:
            self._count_blocked(old.queue, -1)
        else:
            self._history.discard(record)
        ended, ends = old.status in FINAL, run.status in FINAL
        if ended and old.status is run.status:  # the same status was written again: do not count it twice
            self.totals[run.status] -= 1
        if record.owner is not None:
            record.owner.unfinished += ended - ends
        if old.unique is not None and not ended:
            del self._unique[old.unique]
        if run.unique is not None and not ends:
            self._unique[run.unique] = run.id
        record.run = run
        self._put(record, now)

    def _put(self, record: Record, now: int) -> None:
        """File a run under its status."""
        run = record.run
        self._records[run.id] = record
        status = run.status
        if run.gate is not None:
            self._gates.enter(record, next(self._numbers))
        if status is _PENDING:
            name = run.lane
            lane = self._lanes.get(name)
            if lane is None:
                lane = self._lanes[name] = LaneIndex(self._records, run.queue, self._limits)
            if lane.put(record, next(self._numbers), now):
                self.stirred = True
        elif status is _RUNNING:
            self._held.setdefault(run.token, {})[run.id] = record
            if self._limits:
                self._count_running(run.queue, 1)
        elif status is _BLOCKED:
            self._count_blocked(run.queue, 1)
        else:
            self.totals[status] += 1
            self.ended = True
            if status is not _BROKEN:  # never pruned, so not in the history
                self._history.add(record, next(self._numbers), now)

    def _drop_oldest(self, now: int) -> None:
        """Delete the oldest finished runs if there are too many."""
        while self._history.kept > self.keep_runs:
            self._delete_unless_pinned(self._history.pop_oldest(), now)

    def _count_blocked(self, queue: str, change: int) -> None:
        self._blocked[queue] = number = self._blocked.get(queue, 0) + change
        if not number:
            del self._blocked[queue]

    def _count_running(self, name: str, change: int) -> None:
        """Count a run of a queue that has a limit."""
        limit = self._limits.get(name)
        if limit is not None:
            was_full, limit.running = limit.full, limit.running + change
            if was_full and not limit.full:
                self.stirred = True

    def _delete_unless_pinned(self, record: Record, now: int) -> bool:
        """Delete a run past its retention, or keep it for an hour more if a successor still needs it."""
        if record.run.followed and self._edges.pinned(record.run.id):
            self._history.put_off(record, next(self._numbers), now)
            return False
        self._delete(record, now)
        return True

    def _delete(self, record: Record, now: int) -> None:
        run = record.run
        if run.followed:
            self._edges.cut_behind(run.id)
        if run.after:
            self._edges.cut_before(run)
        del self._records[run.id]
        if record.number:
            self._history.discard(record)
        self._history.remember(run.id, now)


def _describe(
    name: str, lanes: Sequence[LaneIndex], limit: QueueLimit | None, running: int, blocked: int, now: int
) -> QueueInfo:
    for lane in lanes:
        lane.ripen(now)
    due = [record.run.run_at for lane in lanes for record in lane.waiting()]
    return QueueInfo(
        name=name,
        waiting=len(due),
        delayed=sum(len(lane.delayed()) for lane in lanes),
        blocked=blocked,
        running=running,
        limit=None if limit is None else limit.allowed,
        oldest_at=min(due, default=None),
    )
