"""The runs of the memory store. This class has no lock and no clock: the store calls it under its own lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count, islice

from msgspec.structs import replace

from mainspring.core.run import FINAL, Beat, Condition, Outcome, Run, Status
from mainspring.jobstores.base import ClaimedRuns, Hold, QueueInfo
from mainspring.jobstores.memory.indexes import Entry, History, QueueIndex, Record, next_run_at, take_runs

__all__ = ["RunTable"]

LOG_LINES = 1000
"""Keep this many lines of a run's log, the last ones."""

# Reading a member off its class takes three times as long in the hot loops.
_PENDING, _RUNNING, _BROKEN = Status.PENDING, Status.RUNNING, Status.BROKEN
_HELD, _EXPIRED, _WAITING = Condition.HELD, Condition.EXPIRED, Condition.WAITING


class RunTable:
    """Runs by id, queue, token, unique key and age. `keep_for` is in microseconds."""

    def __init__(self, jobs: Mapping[str, Entry], keep_runs: int, keep_for: int) -> None:
        self.stirred = False  # a run can be claimed or should be stopped: wake sleeping loops
        self.totals = dict.fromkeys(sorted(FINAL), 0)
        self._jobs = jobs
        self.keep_runs = keep_runs
        self._keep_for = keep_for
        self._numbers = count(1)
        self._records: dict[str, Record] = {}
        self._queues: dict[str, QueueIndex] = {}
        self._held: dict[str | None, dict[str, Record]] = {}  # the running ones, by token
        self._unique: dict[str, str] = {}
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

    def add(self, run: Run, now: int) -> str:
        """Add an enqueued run; return the id under which it is stored."""
        if self.insert(run, self._owner(run), now) or run.unique is None:
            return run.id
        return run.id if run.id in self._records else self._unique.get(run.unique, run.id)

    def insert(self, run: Run, owner: Entry | None, now: int) -> bool:
        """Add an unfinished run unless its id is known or its unique key is taken."""
        if run.id in self._records or self._history.remembers(run.id, now):
            return False
        if run.unique is not None and self._unique.setdefault(run.unique, run.id) != run.id:
            return False
        if owner is not None:
            owner.unfinished += 1
        self._put(Record(run, owner), now)
        return True

    def record_missed(self, run: Run, owner: Entry, now: int) -> None:
        """Add the record of missed fires, or replace it by a longer one."""
        record = self._records.get(run.id)
        if record is None:
            self._put(Record(run, owner), now)
        else:
            self._history.discard(record)
            record.run = run
            self._history.add(record, next(self._numbers), now)

    def claim(self, names: Iterable[str], node: str, token: str, limit: int, now: int, until: int) -> ClaimedRuns:
        """Lease due runs of some queues; if this token holds runs already, return those."""
        named = [self._queues.get(name) for name in dict.fromkeys(names)]
        queues = [queue for queue in named if queue is not None and not queue.paused]
        held = self._held.get(token)
        if held is None:
            held = {}
            for record in take_runs(queues, now, limit):
                run = record.run
                record.run = replace(
                    run,
                    status=_RUNNING,
                    attempt=run.attempt + 1,
                    node=node,
                    token=token,
                    lease_until=until,
                    started_at=now,
                )
                held[run.id] = record
            if held:
                self._held[token] = held
        return ClaimedRuns(now, [record.run for record in held.values()], next_run_at(queues, now))

    def extend(self, beat: Beat, until: int) -> Hold:
        """Renew a lease and keep its holder's reports."""
        record = self._held.get(beat.token, {}).get(beat.run_id)
        if record is None:
            return Hold.LOST
        run = record.run
        record.run = replace(
            run,
            lease_until=until,
            progress=run.progress if beat.progress is None else beat.progress,
            data=run.data if beat.data is None else beat.data,
            log=(*run.log, *beat.log)[-LOG_LINES:] if beat.log else run.log,
        )
        return Hold.CANCEL if run.cancelling else Hold.HELD

    def settle(self, outcome: Outcome, now: int) -> bool:
        """Write a run's next record and its follow-ups, if the condition holds."""
        run = outcome.run
        record = self._records.get(run.id)
        if record is None or not _holds(outcome.condition, record.run, run.token, now):
            return False
        if run.status is _PENDING and record.run.status is _RUNNING and record.run.cancelling:
            return False
        if run.unique is not None and run.status not in FINAL and self._unique.get(run.unique, run.id) != run.id:
            return False
        if outcome.condition is _HELD:
            run = _with_reports(run, record.run)
        self._write(record, run, now)
        for follower in outcome.then:
            owner = record.owner if follower.job_id == run.job_id else self._owner(follower)
            self.insert(follower, owner, now)
        return True

    def lapsed(self, limit: int, now: int) -> list[Run]:
        """Return running runs whose lease is over."""
        running = (record.run for held in self._held.values() for record in held.values())
        return list(islice((run for run in running if (run.lease_until or 0) <= now), limit))

    def cancel(self, run_id: str) -> bool:
        """Mark a running run to be stopped."""
        record = self._records.get(run_id)
        if record is None or record.run.status is not _RUNNING:
            return False
        record.run = replace(record.run, cancelling=True)
        self.stirred = True
        return True

    def delete(self, run_id: str, now: int) -> bool:
        """Delete a finished run."""
        record = self._records.get(run_id)
        if record is None or record.run.status not in FINAL:
            return False
        self._delete(record, now)
        return True

    def prune(self, limit: int, now: int) -> int:
        """Delete finished runs that are past their retention, and forget queues with nothing in them."""
        outdated = 0
        for record in islice(self._history.outdated(now, self._keep_for), limit):
            self._delete(record, now)
            outdated += 1
        for name in [name for name, queue in self._queues.items() if queue.idle]:
            del self._queues[name]
        return outdated

    def queues(self, now: int) -> list[QueueInfo]:
        """Describe the queues that hold unfinished runs or are paused."""
        running: dict[str, int] = {}
        for held in self._held.values():
            for record in held.values():
                running[record.run.queue] = running.get(record.run.queue, 0) + 1
        queues = [
            _describe(name, self._queues.get(name), running.get(name, 0), now)
            for name in sorted(self._queues.keys() | running.keys())
        ]
        return [queue for queue in queues if queue.waiting or queue.delayed or queue.running or queue.paused]

    def set_queue(self, name: str, paused: bool) -> None:
        """Pause or resume a queue."""
        queue = self._queues.setdefault(name, QueueIndex(self._records))
        if queue.paused and not paused:
            self.stirred = True
        queue.paused = paused

    def _owner(self, run: Run) -> Entry | None:
        """Find the job that a run counts for: the job with its id, if it still is the same incarnation."""
        entry = None if run.job_id is None else self._jobs.get(run.job_id)
        if entry is None or not run.id.startswith(f"{run.job_id}@{entry.job.incarnation}@"):
            return None
        return entry

    def _write(self, record: Record, run: Run, now: int) -> None:
        """Replace a run by its next record: remove it from its index, and file it again."""
        old = record.run
        if old.status is _RUNNING:
            held = self._held[old.token]
            del held[old.id]
            if not held:
                del self._held[old.token]
        elif old.status is _PENDING:
            self._queues[old.queue].discard(record)
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
        if status is _PENDING:
            queue = self._queues.get(run.queue)
            if queue is None:
                queue = self._queues[run.queue] = QueueIndex(self._records)
            if queue.put(record, next(self._numbers), now):
                self.stirred = True
        elif status is _RUNNING:
            self._held.setdefault(run.token, {})[run.id] = record
        else:
            self.totals[status] += 1
            if status is not _BROKEN:  # never pruned, so not in the history
                self._history.add(record, next(self._numbers), now)
                while self._history.kept > self.keep_runs:
                    self._delete(self._history.pop_oldest(), now)

    def _delete(self, record: Record, now: int) -> None:
        del self._records[record.run.id]
        self._history.discard(record)
        self._history.remember(record.run.id, now)


def _holds(condition: Condition, stored: Run, token: str | None, now: int) -> bool:
    if stored.token != token:
        return False
    if condition is _HELD:
        return stored.status is _RUNNING
    if condition is _EXPIRED:
        return stored.status is _RUNNING and (stored.lease_until or 0) <= now
    if condition is _WAITING:
        return stored.status is _PENDING
    return stored.status in FINAL


def _with_reports(run: Run, stored: Run) -> Run:
    """Keep the reports of heartbeats where the outcome has none."""
    if stored.progress is None and stored.data is None and not stored.log:
        return run
    return replace(
        run,
        progress=stored.progress if run.progress is None else run.progress,
        data=stored.data if run.data is None else run.data,
        log=run.log or stored.log,
    )


def _describe(name: str, queue: QueueIndex | None, running: int, now: int) -> QueueInfo:
    if queue is None:
        return QueueInfo(name=name, running=running)
    queue.ripen(now)
    due = [record.run.run_at for record in queue.waiting()]
    return QueueInfo(
        name=name,
        waiting=len(due),
        delayed=len(queue.delayed()),
        running=running,
        paused=queue.paused,
        oldest_at=min(due, default=None),
    )
