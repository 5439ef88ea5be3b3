"""Compute coming fires: of one job with the effects of clock changes, of many jobs in order, and as load. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, tzinfo
from itertools import islice
from math import inf
from typing import Final, NamedTuple

from mainspring.core.instants import SECOND, from_us
from mainspring.core.job import Job
from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.clock_notes import ClockNote, fire_note

__all__ = [
    "MOST_STEPS",
    "Fire",
    "LoadStep",
    "expected_load",
    "fires_between",
    "fires_from",
    "first_fire",
    "next_fires",
    "past_fires",
    "preview",
]

MOST_STEPS: Final = 10_000
"""Compute the load of at most this many steps."""
EXACT_FIRES: Final = 20
"""Count up to this many fires of a job in one step exactly, and estimate the others."""


class Fire(NamedTuple):
    """A coming fire, before jitter; `note` says how a change of the clock affects it, or what is left out."""

    job_id: str
    at: datetime
    note: ClockNote | None = None


class LoadStep(NamedTuple):
    """The expected load of one step that begins at `at`: the number of fires, and the slots they use on average."""

    at: datetime
    fires: int
    busy: float


def fires_from(trigger: BaseTrigger, at: int | None, until: float = inf) -> Iterator[int]:
    """Yield the fires of a trigger from the fire `at` on, as long as they are before `until`."""
    while at is not None and at < until:
        yield at
        at = trigger.next_fire(at, at)


def first_fire(job: Job, since: int) -> int | None:
    """Return the first fire of a job from an instant on: the stored one, or else the trigger's."""
    stored = job.at is not None and job.nominal is not None and job.nominal >= since
    return job.nominal if stored else job.trigger.first_fire(since)


def next_fires(job: Job, now: int) -> Iterator[int]:
    """Yield the coming fires of a job, before jitter; treat a paused job as if it were resumed now."""
    return fires_from(job.trigger, job.nominal if job.at is not None else job.trigger.next_fire(None, now))


def past_fires(trigger: BaseTrigger, since: int, until: int, most: int) -> list[int]:
    """Return the fires of a trigger between two instants; raise ValueError if there are more than `most`."""
    found = list(islice(fires_from(trigger, trigger.first_fire(since), until + 1), most + 1))
    if len(found) > most:
        raise ValueError(f"there are more than {most:,} fires between those times; take a shorter time")
    return found


def preview(job: Job, now: int, number: int, zone: tzinfo) -> list[Fire]:
    """Return the next fires of a job with their notes, to show to people."""
    ahead = list(islice(next_fires(job, now), number))
    return [_fire(at, job, previous, zone) for at, previous in zip(ahead, [None, *ahead], strict=False)]


def fires_between(jobs: Iterable[Job], since: int, until: int, limit: int, zone: tzinfo) -> list[Fire]:
    """Return the first `limit` fires of jobs from `since` until `until`, ordered by time; paused jobs have none."""
    streams = [_within(job, since, until) for job in jobs if job.at is not None]
    merged = islice(heapq.merge(*streams, key=lambda fire: (fire[0], fire[1].id)), limit)
    return [_fire(at, job, previous, zone) for at, job, previous in merged]


def _within(job: Job, since: int, until: int) -> Iterator[tuple[int, Job, int | None]]:
    """Yield the fires of a job between two instants, each with the job and the fire before it."""
    previous = None
    for at in fires_from(job.trigger, first_fire(job, since), until + 1):
        yield at, job, previous
        previous = at


def _fire(at: int, job: Job, previous: int | None, zone: tzinfo) -> Fire:
    return Fire(job.id, from_us(at, job.trigger.timezone or zone), fire_note(job.trigger, at, previous))


def expected_load(
    jobs: Iterable[Job], usual_seconds: Mapping[str, float], since: int, until: int, step: int, zone: tzinfo
) -> list[LoadStep]:
    """Return how many slots the fires of jobs use in each step, if each run takes as long as usual."""
    number = -(-(until - since) // step)
    if number > MOST_STEPS:
        raise ValueError(f"that are {number:,} steps, and at most {MOST_STEPS:,} are computed; take a longer step")
    counts, busy = [0] * number, [0] * number
    for job in jobs:
        if job.at is None:
            continue
        took = int(usual_seconds.get(job.id, 0.0) * SECOND)
        for at, fires in _counted(job, since, until, step):
            counts[(at - since) // step] += fires
            _spread(busy, at - since, took, step, fires)
    return [LoadStep(from_us(since + n * step, zone), counts[n], busy[n] / step) for n in range(number)]


def _counted(job: Job, since: int, until: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield fires of a job, each with the number of fires that it stands for.

    A job that fires every second has 86,400 fires in a day. In a step with very many, the first ones stand for all.
    """
    at = first_fire(job, since)
    while at is not None and at < until:
        first, number, end = at, 1, min(until, at - (at - since) % step + step)
        yield at, 1
        last, at = at, job.trigger.next_fire(at, at)
        while at is not None and at < end:
            if number == EXACT_FIRES:
                yield last, (end - 1 - last) * (number - 1) // max(1, last - first)
                at = job.trigger.first_fire(end)
                break
            yield at, 1
            number += 1
            last, at = at, job.trigger.next_fire(at, at)


def _spread(busy: list[int], start: int, took: int, step: int, number: int = 1) -> None:
    """Add the time that runs take to the steps during which they go on."""
    for n in range(start // step, min(len(busy), (start + took) // step + 1)):
        busy[n] += number * max(0, min(start + took, (n + 1) * step) - max(start, n * step))
