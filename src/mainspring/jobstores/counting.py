"""Count the starts, ends and misses of runs, and hand the sums over to the store."""

from __future__ import annotations

import logging
import os
import threading
from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakSet

from mainspring.core.insight.metrics import (
    BUCKETS,
    CELLS,
    CELLS_PER_STEP,
    EVENTS,
    LEVELS,
    MINUTE_US,
    TOOK,
    TOOK_BUCKETS,
    WAITED,
    WAITED_BUCKETS,
    Tally,
)
from mainspring.core.run import Condition, Outcome, Report, Result, Run, Status
from mainspring.core.showing.failures import name_of, place_of

if TYPE_CHECKING:
    from mainspring.jobstores.base import JobStore

__all__ = ["MetricSums", "hand_over"]

MOST_KEYS: Final = 1000
"""A process counts at most this many combinations of minute, queue, task and job, and at most twice as many in all.

Beyond that, it counts jobs under no name, and then queues and tasks, too.
"""
MOST_TALLIES: Final = 20_000
"""Keep at most this many tallies that the store could not take."""
NAME_CHARS: Final = 200

log = logging.getLogger("mainspring.node")

_ADDED, _STARTED, _SUCCEEDED, _FAILED, _RETRIED, _CANCELLED, _MISSED, _INTERRUPTED = range(len(EVENTS))
_ENDS: Final = {
    Status.SUCCEEDED: _SUCCEEDED,
    Status.FAILED: _FAILED,
    Status.BROKEN: _FAILED,
    Status.CANCELLED: _CANCELLED,
    Status.MISSED: _MISSED,
}
_TIMED: Final = (_SUCCEEDED, _FAILED, _RETRIED)
_Key = tuple[int, str, str, str | None]
_Subject = tuple[int, str, str]  # minute, kind, name
_SumKey = TypeVar("_SumKey")


class MetricSums:
    """The sums of one process. Several threads count; one takes the sums."""

    def __init__(self) -> None:
        self.forget()
        _of_this_process.add(self)

    def forget(self) -> None:
        """Reset all sums in a forked child: its parent hands them over, and may have held the lock."""
        self._lock = threading.Lock()
        self._sums: dict[_Key, list[int]] = {}
        self._named: dict[_Subject, list[int]] = {}
        self._left: dict[tuple[str, str, int, int], dict[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._sums or self._left)

    def added(self, runs: Iterable[Run], at: int) -> None:
        """Count runs that were enqueued or fired."""
        with self._lock:
            minute = at // MINUTE_US
            for run in runs:
                self._cells(run, minute)[_ADDED] += 1

    def missed(self, run: Run, number: int, at: int) -> None:
        """Count fires that did not run."""
        with self._lock:
            self._cells(run, at // MINUTE_US)[_MISSED] += number

    def settled(self, settled: Iterable[tuple[Report, Outcome, bool]], now: int) -> None:
        """Count the accepted ends of runs, the starts that they ended, and the runs that they add."""
        with self._lock:
            for report, outcome, accepted in settled:
                if accepted:
                    self._settled(report, outcome, now)

    def _settled(self, report: Report, outcome: Outcome, now: int) -> None:
        run, before = outcome.run, report.run
        event = _ENDS.get(run.status)
        if event is None:
            if run.failures > before.failures:
                event = _RETRIED
            elif report.result is Result.INTERRUPTED or run.crashes > before.crashes:
                event = _INTERRUPTED
            else:  # the run was given back, or asked to be called again
                return
        began = report.started_at or (before.started_at or 0 if report.result is Result.INTERRUPTED else 0)
        ended = report.finished_at or now
        minute = ended // MINUTE_US
        cells = self._cells(run, minute)
        cells[event] += 1
        if event != _SUCCEEDED:
            if event in (_FAILED, _RETRIED) and run.errors:
                last = run.errors[-1]
                self._name("error", name_of(last.type, place_of(last.traceback)), ended)[event] += 1
            if outcome.condition is Condition.EXPIRED and before.node:
                self._name("lost", before.node, ended)[event] += 1
        if began:
            if event in _TIMED and report.started_at:
                took = ended - began if ended > began else 0
                cells[TOOK] += took
                cells[TOOK_BUCKETS + bisect_left(BUCKETS, took)] += 1
            if began // MINUTE_US != minute:
                cells = self._cells(run, began // MINUTE_US)
            waited = began - before.run_at if began > before.run_at else 0
            cells[_STARTED] += 1
            cells[WAITED] += waited
            cells[WAITED_BUCKETS + bisect_left(BUCKETS, waited)] += 1
        for follower in outcome.then:
            self._cells(follower, minute)[_ADDED] += 1

    def _cells(self, run: Run, minute: int) -> list[int]:
        key = minute, run.queue, run.task, run.job_id
        return self._sums.get(key) or self._begin_cells(key)

    def _begin_cells(self, key: _Key) -> list[int]:
        """Return the cells of one more combination, or those with fewer names if there are too many."""
        sums = self._sums
        if len(sums) >= MOST_KEYS and key[3] is not None:
            key = (*key[:3], "")
        if len(sums) >= 2 * MOST_KEYS and key not in sums:
            key = key[0], "", "", ""
        cells = sums.get(key)
        if cells is None:
            cells = sums[key] = [0] * CELLS
        return cells

    def _name(self, kind: str, name: str, at: int) -> list[int]:
        key = at // MINUTE_US, kind, name[:NAME_CHARS]
        if key not in self._named and len(self._named) >= MOST_KEYS:
            key = key[0], kind, ""
        return self._named.setdefault(key, [0] * CELLS)

    def take(self) -> list[Tally]:
        """Return all sums as tallies, and reset them."""
        with self._lock:
            sums, self._sums, tallies, self._left = self._sums, {}, self._left, {}
            named, self._named = self._named, {}
        minutes: dict[_Subject, dict[int, int]] = {}
        for (minute, queue, task, job), cells in sums.items():
            counted = [(cell, number) for cell, number in enumerate(cells) if number]
            _add(minutes, (minute, "all", ""), counted)
            _add(minutes, (minute, "queue", queue[:NAME_CHARS]), counted)
            _add(minutes, (minute, "task", task[:NAME_CHARS]), counted)
            if job is not None:
                _add(minutes, (minute, "job", job[:NAME_CHARS]), counted)
        for subject, cells in named.items():
            _add(minutes, subject, [(cell, number) for cell, number in enumerate(cells) if number])
        for (minute, kind, name), found in minutes.items():
            at = minute * MINUTE_US
            for level, (step, stretch, _) in enumerate(LEVELS):
                place = at % stretch // step * CELLS_PER_STEP
                moved = [(place + cell, number) for cell, number in found.items()]
                _add(tallies, (kind, name, level, at - at % stretch), moved)
        return [Tally(*key, cells) for key, cells in tallies.items()]

    def put_back(self, tallies: Iterable[Tally]) -> None:
        """Keep tallies that the store could not take, for the next hand-over."""
        with self._lock:
            for tally in tallies:
                key = tally.kind, tally.name, tally.level, tally.at
                if key in self._left or len(self._left) < MOST_TALLIES:
                    _add(self._left, key, tally.cells.items())


_of_this_process: Final[WeakSet[MetricSums]] = WeakSet()


def _forget_all() -> None:
    for sums in list(_of_this_process):
        sums.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _add(sums: dict[_SumKey, dict[int, int]], key: _SumKey, counted: Iterable[tuple[int, int]]) -> None:
    """Add numbers to the cells of one key."""
    cells = sums.get(key)
    if cells is None:
        sums[key] = dict(counted)
        return
    for cell, number in counted:
        cells[cell] = cells.get(cell, 0) + number


def hand_over(sums: MetricSums, store: JobStore) -> None:
    """Hand the sums over to a store; if it fails, keep them for the next time: charts must not stop the work."""
    if not sums:
        return
    tallies = sums.take()
    try:
        store.tallies(tallies)
    except Exception as error:
        sums.put_back(tallies)
        log.info("what was counted could not be stored yet: %s", error)
