"""The verbs that count and measure: errors by kind, tasks by cost, the expected start and end of a run."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mainspring.app.handle import RunHandle
from mainspring.core.insight.metrics import KINDS, LEVELS, MINUTE_US, MetricSeries, level_for, series
from mainspring.core.insight.task_figures import TaskFigures, figures_of
from mainspring.core.instants import SECOND, from_us
from mainspring.core.run import Run, Status
from mainspring.core.showing.failures import ErrorGroup, ErrorPage, group_errors, with_counts
from mainspring.core.showing.run_view import RunView
from mainspring.core.store_urls import sqlite_file
from mainspring.errors import HistoryNotKept
from mainspring.jobstores.base import NodeInfo, RunQuery
from mainspring.jobstores.finding import instant_of, newest

if TYPE_CHECKING:
    from mainspring.app.app import Mainspring

__all__ = ["Eta", "LostNode", "Numbers", "StoreFigures"]

MOST_FAILED: Final = 1000
MADE_EARLIER: Final = timedelta(days=1)
"""Search this far back in addition, for runs that were made earlier and failed within the time asked for."""
DAY: Final = timedelta(days=1)
MOST_STEPS: Final = 10_000
MOST_STEPS_SHOWN: Final = 96
"""Divide a time into about this many steps if the caller gives no step."""
PENDING_SHARE: Final = 4
"""Read only one in this many as many waiting runs, because few of them have failed before."""
RUNS_SEARCHED: Final = 10_000
"""Look for successful runs of a queue among this many of the newest runs."""
RUNS_AHEAD_READ: Final = 200
"""Count the runs ahead of a run only if its queue holds at most this many."""


class Eta(NamedTuple):
    """The expected start and end of a run; None where there is nothing to estimate from."""

    start: datetime | None
    end: datetime | None


class StoreFigures(NamedTuple):
    """The size of a store in bytes, if it can tell cheaply, and the seconds that it takes to answer."""

    size: int | None
    latency: float


class LostNode(NamedTuple):
    """A node that fell silent: its id, about when its runs were last given to others, and how many those were."""

    id: str
    at: datetime
    runs: int


class Numbers:
    """Counts and measures what an app's runs did."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    def errors(self, since: datetime | timedelta = DAY, *, most: int | None = MOST_FAILED) -> ErrorPage:
        """Return the errors of runs that failed or are retried since then, grouped by type and place in your code.

        Each run counts once, by its last error. The newest group comes first. The numbers come from counters, which
        outlive the runs; a store without history counts the runs that it still has. `most` is how many of the newest
        runs to read for messages and traces; None reads all.
        """
        runs, complete = self._failures(since, most)
        groups = with_counts(group_errors(runs), self._counted_errors(since))
        groups.sort(key=lambda group: group.newest.at, reverse=True)
        return ErrorPage(groups, len(runs), complete)

    def error(
        self, key: str, since: datetime | timedelta = DAY, *, most: int | None = MOST_FAILED
    ) -> tuple[ErrorGroup, list[RunView]] | None:
        """Return one group of errors by its key, and its runs, newest first; None if there is no such group."""
        runs, _ = self._failures(since, most)
        group = next((each for each in group_errors(runs) if each.key == key), None)
        return None if group is None else (group, group.runs)

    def _counted_errors(self, since: datetime | timedelta) -> dict[str, list[tuple[datetime, int]]]:
        if not self._app.store.keeps_history:
            return {}
        counted = self.metrics(since, by="error")
        oldest = self._instant(since)
        found: dict[str, list[tuple[datetime, int]]] = {}
        for name, line in counted.lines.items():
            times = (max(oldest, counted.since + number * counted.step) for number in range(counted.number))
            steps = [(at, each.of("failed")) for at, each in zip(times, line, strict=True) if each.of("failed")]
            found[name] = [(from_us(at, self._app.timezone), number) for at, number in steps]
        return found

    def lost_nodes(self, since: datetime | timedelta = DAY) -> list[LostNode]:
        """Return the nodes whose runs other nodes had to take over since a time, newest first, by counters."""
        counted = self.metrics(since, by="lost", step=timedelta(minutes=1))
        found = []
        for name, line in counted.lines.items():
            steps = [number for number, each in enumerate(line) if any(each.events)]
            if steps:
                at = from_us(counted.since + steps[-1] * counted.step, self._app.timezone)
                found.append(LostNode(name, at, sum(sum(each.events) for each in line)))
        return sorted(found, key=lambda lost: lost.at, reverse=True)

    def _failures(self, since: datetime | timedelta, most: int | None) -> tuple[list[RunView], bool]:
        oldest = self._instant(since)
        earlier = oldest - int(MADE_EARLIER.total_seconds() * SECOND)
        failed, complete = self._newest(RunQuery(status=(Status.FAILED,)), earlier, most)
        fewer = None if most is None else max(1, most // PENDING_SHARE)
        pending, all_pending = self._newest(RunQuery(status=(Status.PENDING,)), earlier, fewer)
        found = [run for run in (*failed, *(each for each in pending if each.errors)) if run.errors]
        recent = [run for run in found if run.errors[-1].at >= oldest]
        recent.sort(key=lambda run: run.errors[-1].at, reverse=True)
        return list(map(self._app.runs.view, recent)), complete and all_pending

    def _newest(self, query: RunQuery, oldest: int, most: int | None) -> tuple[list[Run], bool]:
        found = newest(self._app.store, query, None if most is None else most + 1, None, None, oldest)
        return found[:most], most is None or len(found) <= most

    def _instant(self, since: datetime | timedelta) -> int:
        return instant_of(since, self._app.now, lambda: self._app.timezone)

    def metrics(
        self,
        since: datetime | timedelta = DAY,
        until: datetime | timedelta | None = None,
        step: timedelta | None = None,
        *,
        by: str | None = None,
        queue: str | None = None,
        task: str | None = None,
        job: str | None = None,
    ) -> MetricSeries:
        """Return the counters for each step of a time: of all runs, of one queue, task or job, or by one of these.

        Counters outlive the runs: minutes are kept for two days, hours for 90 days, days for ever. So a step that lies
        far back cannot be shorter than an hour or a day. Steps begin at whole multiples of the step, in UTC. Raise
        HistoryNotKept if the store keeps no counters.
        """
        store = self._app.store
        if not store.keeps_history:
            raise HistoryNotKept(type(store).__name__, "what its runs did was not counted")
        named = {kind: name for kind, name in (("queue", queue), ("task", task), ("job", job)) if name is not None}
        if len(named) + (by is not None) > 1:
            raise TypeError("give one of by=, queue=, task= and job=: counters are kept for each of them by itself")
        if by not in (None, *KINDS[1:]):
            raise ValueError(f"by={by!r} is unknown; it can be 'queue', 'task', 'job', 'error' or 'lost'")
        now = self._app.now()
        first, last = self._instant(since), now + 1 if until is None else self._instant(until)
        length = max(MINUTE_US, (last - first) // MOST_STEPS_SHOWN) if step is None else _step_us(step)
        level = level_for(first, length, now)
        length = max(length, LEVELS[level].step)
        length = -(-length // LEVELS[level].step) * LEVELS[level].step
        first, last = first // length * length, -(-max(last, first + 1) // length) * length
        if (last - first) // length > MOST_STEPS:
            raise ValueError(f"that is more than {MOST_STEPS:,} steps; give a longer step, or a shorter time")
        kind, name = next(iter(named.items()), (by or "all", None))
        found = store.tallies(kind=kind, name=name, level=level, since=first, until=last)
        return MetricSeries(first, length, (last - first) // length, series(found, first, last, length))

    def task_figures(self, since: datetime | timedelta = DAY) -> list[TaskFigures]:
        """Return the cost of each task, the most expensive first; it comes from counters, so pruned runs count, too.

        The tasks are those of this app, and those that were counted since the given time.
        """
        counted = self.metrics(since, by="task")
        known = {task.name for task in self._app.tasks if not task.name.startswith("mainspring:")}
        return figures_of({name: counted.total(name) for name in counted.lines}, known)

    def eta(self, run: str | RunHandle[Any] | RunView) -> Eta:
        """Estimate when a run starts and ends, from its place in the queue, the slots, and how long earlier runs took.

        There is no estimate for the end of a run that has already taken longer than usual.
        """
        record, now = self._app.runs.read(run), self._app.now()
        usual = self._usual(record)
        start: int | None = record.started_at
        if record.status is Status.PENDING:
            start = self._start(record, usual, now)
        elif record.status is not Status.RUNNING:
            return Eta(self._moment(record.started_at), self._moment(record.finished_at))
        end = None if start is None or usual is None or start + usual < now else start + usual
        return Eta(self._moment(start), self._moment(end))

    def _usual(self, record: Run) -> int | None:
        """Return the median time of the newest runs of this job or task that succeeded."""
        store = self._app.store
        query = RunQuery(status=(Status.SUCCEEDED,), job_id=record.job_id)
        if record.job_id is None:  # no index finds the runs of a queue, so search only the newest
            query = RunQuery(status=query.status, queue=record.queue, since=store.made_behind(None, RUNS_SEARCHED))
        found = store.find_runs(query, limit=RUNS_AHEAD_READ)
        same = [each for each in found if each.call.task_name == record.call.task_name]
        lengths = sorted(each.finished_at - each.started_at for each in same if each.finished_at and each.started_at)
        return lengths[len(lengths) // 2] if lengths else None

    def _start(self, record: Run, usual: int | None, now: int) -> int | None:
        if record.run_at > now:
            return record.run_at
        queue = next((each for each in self._app.queues() if each.name == record.queue), None)
        slots = slots_of(record.queue, self._app.nodes())
        if queue is None or queue.paused or not slots or queue.waiting + queue.delayed > RUNS_AHEAD_READ:
            return None
        pending = RunQuery(status=(Status.PENDING,), queue=record.queue)
        waiting = [run for run in self._app.store.find_runs(pending, limit=RUNS_AHEAD_READ) if run.run_at <= now]
        mine = (-record.priority, record.run_at)
        ahead = sum((-run.priority, run.run_at) < mine for run in waiting)
        if ahead + queue.running < slots:
            return now
        return None if usual is None else now + usual * (ahead + 1) // slots

    def _moment(self, us: int | None) -> datetime | None:
        return None if us is None else from_us(us, self._app.timezone)

    def store_figures(self) -> StoreFigures:
        """Return the size of the store, if it can tell, and how long it takes to answer."""
        began = time.perf_counter()
        self._app.store.beat()
        latency = time.perf_counter() - began
        path = sqlite_file(self._app.url) if isinstance(self._app.url, str) else None
        return StoreFigures(self._app.store.health().size if path is None else _size(path), latency)


def _step_us(step: timedelta) -> int:
    if step.total_seconds() < 1:
        raise ValueError(f"a step lasts at least a second, not {step!r}")
    return int(step.total_seconds() * SECOND)


def slots_of(queue: str, nodes: Iterable[NodeInfo]) -> int:
    """Return how many slots the living nodes have for a queue."""
    return sum(node.slots for node in nodes if queue in node.queues and node.state == "running")


def _size(path: Path) -> int | None:
    files = [each for each in (path, path.with_name(f"{path.name}-wal")) if each.exists()]
    return sum(each.stat().st_size for each in files) if files else None
