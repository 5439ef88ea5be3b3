"""The past, for charts: how many runs succeeded and failed in each step, by the counters."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from mainspring.core.insight.metrics import Counts

if TYPE_CHECKING:
    from mainspring.dashboard.page import View

__all__ = ["RANGES", "HistoryRange", "RunHistory", "read_history", "usual_range"]

FRESH_SECONDS: Final = 2.0
HOUR: Final = timedelta(hours=1)


class HistoryRange(NamedTuple):
    """A range that a chart can show: its words, its length and its steps."""

    words: str
    seconds: int
    steps: int


RANGES: Final = {
    "1h": HistoryRange("1 h", 3600, 60),
    "24h": HistoryRange("24 h", 86_400, 96),
    "7d": HistoryRange("7 d", 7 * 86_400, 84),
    "30d": HistoryRange("30 d", 30 * 86_400, 90),
}


class HistoryStep(NamedTuple):
    """How many runs ended in one step."""

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
        """How many runs succeeded."""
        return sum(step.succeeded for step in self.steps)

    @property
    def failed(self) -> int:
        """How many runs failed."""
        return sum(step.failed for step in self.steps)

    @property
    def began_lately(self) -> bool:
        """Whether runs ended in the last hour, and none in the rest of the range."""
        lately = self.last_hour.of("succeeded") + self.last_hour.of("failed")
        return 0 < self.succeeded + self.failed <= lately


def usual_range(view: View) -> str:
    """Return the range to show unless somebody chooses: a day; an hour while the first run has ended within it."""
    if not view.keeps_history:
        return "24h"
    young = all(read_history(view, RANGES[name]).began_lately for name in ("24h", "30d"))
    return "1h" if young else "24h"


def read_history(view: View, chosen: HistoryRange) -> RunHistory:
    """Count the runs that ended in a range; viewers share what was read."""
    return view.cached(f"history {chosen.words}", FRESH_SECONDS, lambda: _read(view, chosen))


def _read(view: View, chosen: HistoryRange) -> RunHistory:
    step = timedelta(seconds=chosen.seconds / chosen.steps)
    found = view.app.metrics(timedelta(seconds=chosen.seconds), step=step)
    counts = found.whole[-chosen.steps :]
    first = found.since + found.step * (found.number - len(counts))
    steps = [
        HistoryStep(first + number * found.step, each.of("succeeded"), each.of("failed"))
        for number, each in enumerate(counts)
    ]
    return RunHistory(steps, found.step, view.app.metrics(HOUR).total())
