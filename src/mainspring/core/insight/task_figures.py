"""The cost of each task: how often it ran, how long it took, how often it failed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from mainspring.core.insight.metrics import BUCKETS, Counts
from mainspring.core.instants import SECOND

__all__ = ["TaskFigures", "figures_of"]


class TaskFigures(msgspec.Struct, kw_only=True):
    """The figures of one task; times are seconds, and None if no run of it has ended.

    They come from counters, so a percentile is only as exact as a bucket is wide; `longest` is the upper end of the
    bucket of the longest run.
    """

    name: str
    known: bool = True
    """Whether this app has the task."""
    runs: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    total: float = 0.0
    waited_p95: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    longest: float | None = None
    histogram: tuple[int, ...] = ()
    """How many starts lie in each bucket of `metrics.BUCKETS`, and beyond the last one."""

    @property
    def failure_rate(self) -> float | None:
        """The share of failed runs among those that ended."""
        ended = self.succeeded + self.failed
        return self.failed / ended if ended else None


def figures_of(totals: Mapping[str, Counts], known: Iterable[str] = ()) -> list[TaskFigures]:
    """Return the figures of each task that was counted or is known; the task that took the most time comes first."""
    mine = set(known)
    names = {*mine, *(name for name in totals if name and not name.startswith("mainspring:"))}
    found = [_figures(name, totals.get(name, Counts()), name in mine) for name in names]
    return sorted(found, key=lambda each: (-each.total, -each.runs, each.name))


def _figures(name: str, counts: Counts, known: bool) -> TaskFigures:
    took = counts.took
    last = max((place for place, number in enumerate(took.buckets) if number), default=None)
    return TaskFigures(
        name=name,
        known=known,
        runs=counts.of("succeeded") + counts.of("failed"),
        succeeded=counts.of("succeeded"),
        failed=counts.of("failed"),
        retried=counts.of("retried"),
        total=took.total / SECOND,
        waited_p95=_seconds(counts.waited.percentile(0.95)),
        p50=_seconds(took.percentile(0.5)),
        p95=_seconds(took.percentile(0.95)),
        p99=_seconds(took.percentile(0.99)),
        longest=None if last is None else BUCKETS[min(last, len(BUCKETS) - 1)] / SECOND,
        histogram=took.buckets if took.number else (),
    )


def _seconds(length: int | None) -> float | None:
    return None if length is None else length / SECOND
