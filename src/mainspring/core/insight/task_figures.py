"""What each task costs: how often it ran, how long it took, how often it failed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from mainspring.core.run import Status
from mainspring.core.run_view import RunView

__all__ = ["DURATION_STEPS", "TaskFigures", "figures_of", "percentile"]

DURATION_STEPS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
"""The upper ends of the steps of a histogram of durations, in seconds; the last step has none."""


class TaskFigures(msgspec.Struct, kw_only=True):
    """The figures of one task; times are seconds, and None if no run of it has ended."""

    name: str
    known: bool = True
    """Whether this app has the task."""
    runs: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    total: float = 0.0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    longest: float | None = None
    histogram: tuple[int, ...] = ()
    newest_run: str | None = None

    @property
    def failure_rate(self) -> float | None:
        """The share of the runs that ended which failed."""
        ended = self.succeeded + self.failed
        return self.failed / ended if ended else None


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value below which this share of ordered values lies."""
    return ordered[max(0, -(-len(ordered) * int(share * 100) // 100) - 1)] if ordered else None


def figures_of(runs: Iterable[RunView], known: Iterable[str] = ()) -> list[TaskFigures]:
    """Return the figures of each task that has runs or is known, the one that took the most time first."""
    mine = set(known)
    found = {name: TaskFigures(name=name) for name in mine}
    lengths: dict[str, list[float]] = {}
    for run in runs:
        if run.task.startswith("mainspring:"):
            continue
        figures = found.setdefault(run.task, TaskFigures(name=run.task, known=run.task in mine))
        figures.newest_run = figures.newest_run or run.id
        figures.runs += 1
        figures.succeeded += run.status is Status.SUCCEEDED
        figures.failed += run.status is Status.FAILED
        figures.retried += bool(run.failures) and run.status is not Status.FAILED
        if run.duration is not None and run.status in (Status.SUCCEEDED, Status.FAILED):
            lengths.setdefault(run.task, []).append(run.duration)
    for name, values in lengths.items():
        values.sort()
        figures = found[name]
        figures.total, figures.longest = sum(values), values[-1]
        figures.p50, figures.p95, figures.p99 = (percentile(values, share) for share in (0.5, 0.95, 0.99))
        figures.histogram = _histogram(values)
    return sorted(found.values(), key=lambda each: (-each.total, -each.runs, each.name))


def _histogram(values: Sequence[float]) -> tuple[int, ...]:
    counts = [0] * (len(DURATION_STEPS) + 1)
    for value in values:
        counts[next((n for n, end in enumerate(DURATION_STEPS) if value <= end), len(DURATION_STEPS))] += 1
    return tuple(counts)
