"""The past, for charts: the successes and failures in each step, and the deploys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from mainspring.core.insight.metrics import Counts
from mainspring.core.instants import to_us
from mainspring.dashboard.looks.charts import Deploy

if TYPE_CHECKING:
    from mainspring.app.insight.acting import TimeMark
    from mainspring.dashboard.page import View

__all__ = ["RANGES", "HistoryRange", "RunHistory", "deploys_within", "read_history", "usual_range"]

FRESH_SECONDS: Final = 2.0
HOUR: Final = timedelta(hours=1)


class HistoryRange(NamedTuple):
    """A range that a chart can show: its title, its length and its steps."""

    words: str
    length: timedelta
    steps: int


RANGES: Final = {
    "1h": HistoryRange("1 h", HOUR, 60),
    "24h": HistoryRange("24 h", timedelta(days=1), 96),
    "7d": HistoryRange("7 d", timedelta(days=7), 84),
    "30d": HistoryRange("30 d", timedelta(days=30), 90),
}


class HistoryStep(NamedTuple):
    """The number of runs that ended in one step."""

    at: int
    succeeded: int
    failed: int


class RunHistory(NamedTuple):
    """The steps, oldest first."""

    steps: list[HistoryStep]
    step: int
    last_hour: Counts

    @property
    def succeeded(self) -> int:
        """The number of successes."""
        return sum(step.succeeded for step in self.steps)

    @property
    def failed(self) -> int:
        """The number of failures."""
        return sum(step.failed for step in self.steps)

    @property
    def began_lately(self) -> bool:
        """Whether all runs of the range ended in its last hour, and there were some."""
        lately = self.last_hour.of("succeeded") + self.last_hour.of("failed")
        return 0 < self.succeeded + self.failed <= lately


def usual_range(view: View) -> str:
    """Return the default range: a day, or an hour if the first run ended within it."""
    if not view.keeps_history:
        return "24h"
    young = all(read_history(view, RANGES[name]).began_lately for name in ("24h", "30d"))
    return "1h" if young else "24h"


def read_history(view: View, chosen: HistoryRange) -> RunHistory:
    """Count the runs that ended in a range; viewers share the result."""
    return view.cached(f"history {chosen.words}", FRESH_SECONDS, lambda: _read(view, chosen))


def _read(view: View, chosen: HistoryRange) -> RunHistory:
    found = view.app.metrics(chosen.length, step=chosen.length / chosen.steps)
    counts = found.whole[-chosen.steps :]
    first = found.since + found.step * (found.number - len(counts))
    steps = [
        HistoryStep(first + number * found.step, each.of("succeeded"), each.of("failed"))
        for number, each in enumerate(counts)
    ]
    return RunHistory(steps, found.step, view.app.metrics(HOUR).total())


def deploys_within(marks: Sequence[TimeMark], begin: int, end: int) -> list[Deploy]:
    """Return the marks for a chart between two instants, oldest first."""
    return [Deploy((to_us(mark.at) - begin) / (end - begin), mark.text[:40]) for mark in reversed(marks)]
