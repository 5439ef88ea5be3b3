"""Counters that outlive runs: what happened in each minute, per queue, task and job, and how long it took. Pure.

A node sums up what it does and hands the sums over with its heartbeat. Minutes become hours, hours become days, so that
what is kept stays small, however many runs there were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from mainspring.core.instants import SECOND
from mainspring.core.run import Run, Status

__all__ = [
    "BUCKETS",
    "DAY_US",
    "EVENTS",
    "HOUR_US",
    "MINUTE_US",
    "Counts",
    "MetricKey",
    "MetricSums",
    "MetricsRow",
    "Spread",
    "merged",
    "series",
    "thinned",
]

MINUTE_US: Final = 60 * SECOND
HOUR_US: Final = 60 * MINUTE_US
DAY_US: Final = 24 * HOUR_US
KEEP_MINUTES_US: Final = 2 * DAY_US
"""Minutes are kept this long, then they are summed up to hours."""
KEEP_HOURS_US: Final = 90 * DAY_US
"""Hours are kept this long, then they are summed up to days, which are kept for ever."""

EVENTS: Final = ("added", "started", "succeeded", "failed", "retried", "cancelled", "missed", "interrupted")
"""What is counted."""
BUCKETS: Final = tuple(int(SECOND * 0.001 * 2.2**number) for number in range(19))
"""The upper bounds of the first nineteen of the twenty buckets of a histogram: from 1 ms to about 24 minutes."""
MOST_KEYS: Final = 1000
"""A node counts at most this many combinations of queue, task and job in a minute; the rest goes under `other`."""
OTHER: Final = "other"


class MetricKey(NamedTuple):
    """What a counter is about; an empty job stands for runs that no job fired."""

    queue: str
    task: str
    job: str = ""


class Spread(msgspec.Struct, frozen=True, array_like=True):
    """Lengths of time: their number, their sum, and how many lie in each bucket."""

    number: int = 0
    total: int = 0
    buckets: tuple[int, ...] = (0,) * (len(BUCKETS) + 1)

    def with_length(self, length: int) -> Spread:
        """Return the spread with one length more."""
        place = bucket_of(length)
        buckets = (*self.buckets[:place], self.buckets[place] + 1, *self.buckets[place + 1 :])
        return Spread(self.number + 1, self.total + max(0, length), buckets)

    def __add__(self, other: Spread) -> Spread:
        """Return both together."""
        buckets = tuple(one + two for one, two in zip(self.buckets, other.buckets, strict=True))
        return Spread(self.number + other.number, self.total + other.total, buckets)

    def percentile(self, part: float) -> int | None:
        """Return the length below which this part of all lies: the upper bound of its bucket; None if there is none."""
        if not self.number:
            return None
        wanted, seen = part * self.number, 0
        for place, number in enumerate(self.buckets):
            seen += number
            if number and seen >= wanted:
                return BUCKETS[place] if place < len(BUCKETS) else max(BUCKETS[-1], self.total // self.number)
        return BUCKETS[-1]


def bucket_of(length: int) -> int:
    """Return the bucket of a length."""
    return next((place for place, bound in enumerate(BUCKETS) if length <= bound), len(BUCKETS))


class Counts(msgspec.Struct, frozen=True, array_like=True):
    """How often each event happened, in the order of EVENTS, and how long runs waited and took."""

    events: tuple[int, ...] = (0,) * len(EVENTS)
    waited: Spread = Spread()
    took: Spread = Spread()

    def __add__(self, other: Counts) -> Counts:
        """Return both together."""
        events = tuple(one + two for one, two in zip(self.events, other.events, strict=True))
        return Counts(events, self.waited + other.waited, self.took + other.took)

    def of(self, event: str) -> int:
        """Return how often an event happened."""
        return self.events[EVENTS.index(event)]

    def with_event(self, event: str, number: int = 1) -> Counts:
        """Return the counts with an event more."""
        place = EVENTS.index(event)
        events = (*self.events[:place], self.events[place] + number, *self.events[place + 1 :])
        return Counts(events, self.waited, self.took)


class MetricsRow(msgspec.Struct, frozen=True, array_like=True):
    """What was counted from `at` on, for a step: a minute, an hour or a day."""

    at: int
    step: int
    key: MetricKey
    counts: Counts


_ENDS: Final = {
    Status.SUCCEEDED: "succeeded",
    Status.FAILED: "failed",
    Status.BROKEN: "failed",
    Status.CANCELLED: "cancelled",
    Status.MISSED: "missed",
}


class MetricSums:
    """The sums of one node since it last handed them over."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, MetricKey], Counts] = {}

    def __len__(self) -> int:
        return len(self._sums)

    def count(self, event: str, run: Run, at: int) -> None:
        """Count an event of a run."""
        self._change(run, at, lambda counts: counts.with_event(event))

    def start(self, run: Run, at: int) -> None:
        """Count a start, and how long the run waited for it."""
        waited = max(0, at - run.run_at)

        def change(counts: Counts) -> Counts:
            begun = counts.with_event("started")
            return Counts(begun.events, begun.waited.with_length(waited), begun.took)

        self._change(run, at, change)

    def end(self, run: Run, at: int) -> None:
        """Count the end of a run, or of a start after which it waits again, and how long it took."""
        event = _ENDS.get(run.status, "retried" if run.failures else "interrupted")

        def change(counts: Counts) -> Counts:
            changed = counts.with_event(event)
            if run.started_at is None or event not in ("succeeded", "failed", "retried"):
                return changed
            return Counts(changed.events, changed.waited, changed.took.with_length(at - run.started_at))

        self._change(run, at, change)

    def take(self) -> list[MetricsRow]:
        """Return the sums and begin anew."""
        sums, self._sums = self._sums, {}
        return [MetricsRow(minute, MINUTE_US, key, counts) for (minute, key), counts in sums.items()]

    def put_back(self, rows: Iterable[MetricsRow]) -> None:
        """Take sums back that could not be handed over."""
        for row in rows:
            place = row.at, row.key
            self._sums[place] = self._sums.get(place, Counts()) + row.counts

    def _change(self, run: Run, at: int, change: Callable[[Counts], Counts]) -> None:
        minute = at - at % MINUTE_US
        key = MetricKey(run.queue, run.call.task_name, run.job_id or "")
        if (minute, key) not in self._sums and len(self._sums) >= MOST_KEYS:
            key = MetricKey(OTHER, OTHER)
        place = minute, key
        self._sums[place] = change(self._sums.get(place, Counts()))


def merged(rows: Iterable[MetricsRow]) -> list[MetricsRow]:
    """Return rows with those of the same time, step and key summed up, oldest first."""
    sums: dict[tuple[int, int, MetricKey], Counts] = {}
    for row in rows:
        place = row.at, row.step, row.key
        sums[place] = sums.get(place, Counts()) + row.counts
    return [MetricsRow(at, step, key, counts) for (at, step, key), counts in sorted(sums.items())]


def thinned(rows: Iterable[MetricsRow], now: int) -> list[MetricsRow]:
    """Return rows with old minutes summed up to hours, and old hours to days."""
    return merged(MetricsRow(row.at - row.at % step, step, row.key, row.counts) for row, step in _steps(rows, now))


def _steps(rows: Iterable[MetricsRow], now: int) -> Iterator[tuple[MetricsRow, int]]:
    # By whole days and hours, so that a part of an hour is never summed up without the rest of it.
    hours, days = (now - KEEP_MINUTES_US) // HOUR_US * HOUR_US, (now - KEEP_HOURS_US) // DAY_US * DAY_US
    for row in rows:
        step = DAY_US if row.at < days else HOUR_US if row.at < hours else MINUTE_US
        yield row, max(row.step, step)


def series(
    rows: Iterable[MetricsRow], since: int, until: int, step: int, by: str | None = None, **where: str
) -> Mapping[str, list[Counts]]:
    """Return counts for each step between two instants, by queue, task or job; `where` chooses some of these.

    A row that is longer than a step, as an hour in a chart of minutes is, counts for the step in which it begins.
    """
    number = -(-(until - since) // step)
    found: dict[str, list[Counts]] = {}
    for row in rows:
        if not since <= row.at < until or any(getattr(row.key, name) != value for name, value in where.items()):
            continue
        line = found.setdefault("" if by is None else getattr(row.key, by), [Counts()] * number)
        place = (row.at - since) // step
        line[place] = line[place] + row.counts
    return found
