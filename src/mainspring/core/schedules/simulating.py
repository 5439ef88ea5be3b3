"""Simulate schedules: how often they fire, where their runs overlap, and how clock changes affect them. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from heapq import nsmallest
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from mainspring.core.instants import SECOND, from_us
from mainspring.core.job import Job
from mainspring.core.plan import CATCH_UP_FIRES
from mainspring.core.schedules.clock_changes import notes_between
from mainspring.core.schedules.upcoming import fires_from, first_fire

__all__ = ["BusyMinute", "JobForecast", "Oddity", "Overlap", "Simulation", "simulate"]

MOST_FIRES: Final = 50_000
"""Place at most this many fires of one job in time; count the others only."""
MOST_ODDITIES: Final = 100
BUSIEST_SHOWN: Final = 10
MINUTE_US: Final = 60 * SECOND


class JobForecast(NamedTuple):
    """The simulation of one job: the number of its `fires` in the period, and the first and the last of them."""

    job_id: str
    words: str
    fires: int
    first: datetime | None
    last: datetime | None
    usual_seconds: float | None
    state: str
    """`fires`, `paused`, `later` (after the period) or `never` (the trigger has no more fires)."""
    placed: int
    """Number of fires that the busiest minutes and the overlaps include; fewer than `fires` if those are too many."""


class Overlap(NamedTuple):
    """Fires of a job that come while an earlier run of the job goes on.

    Some start beside that run. Fires above `max_instances` are missed, wait, or cancel it, as the job's `overlap` says.
    """

    job_id: str
    started: int
    missed: int
    first: datetime
    usual_seconds: float
    max_instances: int
    waited: int = 0
    cancelled: int = 0
    """Runs that a later fire cancels."""


class Oddity(NamedTuple):
    """A fire that a change of the local clock affects."""

    job_id: str
    at: datetime
    kind: str
    text: str


class BusyMinute(NamedTuple):
    """A minute in which several jobs fire."""

    at: datetime
    fires: int
    job_ids: tuple[str, ...]


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """The simulated fires between two instants."""

    since: datetime
    until: datetime
    jobs: tuple[JobForecast, ...]
    overlaps: tuple[Overlap, ...]
    oddities: tuple[Oddity, ...]
    busiest: tuple[BusyMinute, ...]
    most_at_once: int
    """The most runs that go on at the same time, if each takes as long as usual; runs of unknown length end at once."""

    @property
    def fires(self) -> int:
        """The number of fires of all jobs."""
        return sum(job.fires for job in self.jobs)

    @property
    def never(self) -> tuple[str, ...]:
        """The jobs that will not fire again."""
        return tuple(job.job_id for job in self.jobs if job.state == "never")


def simulate(
    jobs: Iterable[Job],
    since: int,
    until: int,
    zone: tzinfo,
    usual_seconds: Mapping[str, float],
    paused: frozenset[str] = frozenset(),
) -> Simulation:
    """Simulate the schedules of jobs between two instants."""
    forecasts, overlaps, oddities, placed = [], [], list[Oddity](), dict[str, list[int]]()
    for job in sorted(jobs, key=lambda job: job.id):
        shown = job.trigger.timezone or zone
        ahead = () if job.id in paused else fires_from(job.trigger, first_fire(job, since), until)
        fires = list(islice(ahead, MOST_FIRES))
        usual = usual_seconds.get(job.id)
        forecasts.append(_forecast(job, fires, since, until, shown, usual, job.id in paused))
        placed[job.id] = fires
        if fires and usual is not None:
            placed[job.id], overlap = _run_through(job, fires, usual, shown)
            overlaps += [] if overlap is None else [overlap]
        if fires:
            notes = islice(notes_between(job.trigger, since, until), MOST_ODDITIES)
            oddities += [Oddity(job.id, from_us(at, shown), note.kind, note.text) for at, note in notes]
    return Simulation(
        since=from_us(since, zone),
        until=from_us(until, zone),
        jobs=tuple(forecasts),
        overlaps=tuple(overlaps),
        oddities=tuple(sorted(oddities, key=lambda each: each.at)[:MOST_ODDITIES]),
        busiest=tuple(_busiest(placed, zone)),
        most_at_once=_most_at_once(placed, usual_seconds),
    )


def _forecast(
    job: Job, fires: list[int], since: int, until: int, zone: tzinfo, usual: float | None, paused: bool
) -> JobForecast:
    number, last = len(fires), fires[-1] if fires else None
    if number == MOST_FIRES:
        more, found = job.trigger.overdue(fires[-1], until - 1, 1)
        number, last = number + more - 1, found[-1] if found else last
    if paused:
        state = "paused"
    elif fires:
        state = "fires"
    else:
        state = "never" if job.trigger.first_fire(since) is None else "later"
    first = from_us(fires[0], zone) if fires else None
    shown_last = None if last is None else from_us(last, zone)
    return JobForecast(job.id, job.trigger.describe(), number, first, shown_last, usual, state, len(fires))


def _run_through(job: Job, fires: Sequence[int], usual: float, zone: tzinfo) -> tuple[list[int], Overlap | None]:
    """Return the starts of the runs, and the fires that come while an earlier run goes on."""
    length, ends, starts = int(usual * SECOND), deque[int](), list[int]()
    beside = missed = waited = cancelled = 0
    first = None
    for fire in fires:
        while ends and ends[0] <= fire:
            ends.popleft()
        if ends and first is None:
            first = fire
        start, behind = fire, len(ends) - job.max_instances
        if behind < 0:
            beside += bool(ends)
        elif job.overlap == "skip" or behind >= CATCH_UP_FIRES:
            missed += 1
            continue
        elif job.overlap == "cancel_other":
            cancelled += 1
            ends.popleft()
        else:
            waited += 1
            if job.coalesce and behind:  # it coalesces with the fire that already waits
                continue
            start = ends[behind]
        starts.append(start)
        ends.append(start + length)
    if first is None:
        return starts, None
    known = from_us(first, zone), usual, job.max_instances
    return starts, Overlap(job.id, beside, missed, *known, waited, cancelled)


def _busiest(placed: Mapping[str, Sequence[int]], zone: tzinfo) -> Iterator[BusyMinute]:
    by_job = {job_id: Counter(fire // MINUTE_US for fire in fires) for job_id, fires in placed.items()}
    fires: Counter[int] = Counter()
    jobs: Counter[int] = Counter()
    for minutes in by_job.values():
        fires.update(minutes)
        jobs.update(minutes.keys())
    shared = [(-number, minute) for minute, number in fires.items() if jobs[minute] > 1]
    for number, minute in nsmallest(BUSIEST_SHOWN, shared):
        names = tuple(job_id for job_id, minutes in by_job.items() if minute in minutes)
        yield BusyMinute(from_us(minute * MINUTE_US, zone), -number, names)


def _most_at_once(placed: Mapping[str, Sequence[int]], usual_seconds: Mapping[str, float]) -> int:
    """Return the most runs at once; a run of unknown length ends right after its start."""
    steps: list[tuple[int, int]] = []
    for job_id, fires in placed.items():
        took = max(1, int(usual_seconds.get(job_id, 0.0) * SECOND))
        for fire in fires:
            steps += ((fire, 1), (fire + took, -1))
    going = most = 0
    for _, change in sorted(steps):
        going += change
        most = max(most, going)
    return most
