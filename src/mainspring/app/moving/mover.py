"""Move everything from one store to another: limits, jobs, waiting runs, and the records of ended ones.

If the process is killed between two writes, no job or run is lost or doubled, and a second move continues. The mover
uses only verbs that every store has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from mainspring.app.moving.jobs import JobMover
from mainspring.app.moving.marks import ARRIVING_AT, is_held
from mainspring.app.moving.runs import ENDED, RunMover
from mainspring.app.moving.units import RUNNING, units
from mainspring.core.job import Job
from mainspring.core.run import WAITING, Status
from mainspring.core.waiting.followups import is_hook
from mainspring.core.waiting.gates import QUEUE_GATE
from mainspring.errors import ConfigurationError, ConflictingIdError
from mainspring.jobstores.base import ENDS, JobStore, RunQuery
from mainspring.jobstores.finding import pages
from mainspring.jobstores.values import Stats

__all__ = ["Movable", "Moved", "Mover", "move_store"]

LOOK_AGAIN_SECONDS: Final = 1.0
"""Look this often for the ends of running runs, if the store does not report them."""
TAKEN: Final = "runs that the target does not take: it has their id or unique key, or cannot keep them together"
_RUNNING: Final = RunQuery(status=(Status.RUNNING,))

Watch = Callable[[Iterator[int], int, str], Iterator[int]]
"""A function that passes numbers on as they come, for example under a progress bar; it takes their sum and a label."""


@dataclass
class Movable:
    """The contents of a source that can be moved, and the number of records that stay, by reason."""

    jobs: list[Job] = field(default_factory=list)
    runs: int = 0
    ended: int = 0
    stays: dict[str, int] = field(default_factory=dict)

    def leave(self, why: str, number: int = 1) -> None:
        """Count records that stay, by reason."""
        if number:
            self.stays[why] = self.stays.get(why, 0) + number


@dataclass
class Moved:
    """The numbers of a move: moved, copied, and left at the source, with the reasons."""

    jobs: int = 0
    runs: int = 0
    ended: int = 0
    stays: dict[str, int] = field(default_factory=dict)


class Mover:
    """Moves the contents of a source to a target."""

    def __init__(self, source: JobStore, target: JobStore) -> None:
        self._source, self._target = source, target
        self._jobs, self._runs = JobMover(source, target), RunMover(source, target)

    def look(self) -> Movable:
        """Return the contents that can be moved and those that stay; change nothing."""
        found = Movable()
        jobs, unreadable = self._source.examine_jobs()
        for job in jobs:
            if job.at == ARRIVING_AT:
                raise _unfinished(f"job {job.id!r}")
            if job.executor == "queue":
                found.jobs.append(job)
            else:
                found.leave("jobs for an executor of a scheduler")
        found.leave("jobs that cannot be read here", len(unreadable))
        seen: set[str] = set()
        for page in pages(self._source, RunQuery(status=WAITING)):
            for unit in units(self._source, page, seen):
                if any(is_held(run, ARRIVING_AT) for run in unit.runs):
                    raise _unfinished(f"run {unit.ids[0]!r}")
                waiting = [run for run in unit.runs if run.status in WAITING]
                if why := unit.stays() or (TAKEN if self._runs.left.intersection(unit.ids) else ""):
                    found.leave(why, len(waiting))
                else:
                    found.runs += sum(not is_hook(run) for run in waiting)
        found.leave(RUNNING, self.running())
        found.ended = self._source.stats(ENDED).matching
        return found

    def taken(self, jobs: list[Job]) -> list[str]:
        """Return the ids of jobs that the target has, except for copies of an earlier move."""
        return self._jobs.taken(jobs)

    def running(self) -> int:
        """Return how many runs run at the source."""
        return self._source.stats(_RUNNING).matching

    def _set_limits(self) -> None:
        """Copy the limits and pauses of queues and keys to the target, where it has none."""
        there, here = _numbers(self._target.stats()), _numbers(self._source.stats())
        for gate, number in here.items():
            if gate not in there:
                self._target.set_gate(gate, number)

    def move_runs(self) -> Iterator[int]:
        """Move the waiting runs, page by page; yield the number of runs in each page."""
        return self._runs.move()

    def move_later_runs(self, say: Callable[[int], None] = lambda running: None) -> Iterator[int]:
        """Move the runs that start to wait at the source, until no run is running there; yield the number each time."""
        cursor = 0
        while True:
            before = self.running()
            if before:
                say(before)
                cursor = self._source.wait(cursor, LOOK_AGAIN_SECONDS, ENDS)
            yield from self.move_runs()
            # A run that ended after the pass may have released others. So the last pass is one between two quiet looks.
            if not before and not self.running():
                break
        self._source.wait(cursor, 0, ENDS)

    def move(
        self,
        found: Movable,
        *,
        history: bool,
        wait: bool,
        watch: Watch = lambda numbers, total, label: numbers,
        say: Callable[[int], None] = lambda running: None,
    ) -> Moved:
        """Move what `look` has found, and copy ended runs; `watch` passes on the numbers of each step as they come."""
        self._set_limits()
        # First take the last steps of an earlier move that was killed.
        moved = Moved(jobs=self._jobs.finish(), runs=self._runs.finish())
        moved.jobs += sum(watch(map(self._jobs.move, found.jobs), len(found.jobs), "jobs"))
        moved.runs += sum(watch(self.move_runs(), found.runs, "runs"))
        if wait:
            moved.runs += sum(self.move_later_runs(say))
        if history:
            for _ in watch(self._runs.copy_history(), found.ended, "ended runs"):
                pass
        moved.ended, moved.stays = self._runs.copied, self.look().stays
        return moved


def move_store(source: JobStore, target: JobStore, *, history: bool = True, wait: bool = False) -> Moved:
    """Move jobs and runs; see `Mainspring.move_to`."""
    mover = Mover(source, target)
    found = mover.look()
    if taken := mover.taken(found.jobs):
        raise ConflictingIdError(taken[0])
    return mover.move(found, history=history, wait=wait)


def _numbers(stats: Stats) -> dict[str, int]:
    """Return the limits that people have set, by gate."""
    queues = {QUEUE_GATE + queue.name: queue.limit for queue in stats.queues if queue.limit is not None}
    return queues | stats.limits


def _unfinished(what: str) -> ConfigurationError:
    return ConfigurationError(
        f"a move to this store was not finished: {what} is still held here; repeat that move first"
    )
