"""What happened over time, for charts: how many runs succeeded and failed in each step.

Until stores keep counters of their own, the numbers come from the runs that are still kept; a chart says how far back
that goes.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from mainspring.core.instants import SECOND
from mainspring.core.run import Status

if TYPE_CHECKING:
    from mainspring.dashboard.page import View

__all__ = ["RANGES", "HistoryRange", "RunHistory", "read_history"]

MOST_RUNS: Final = 2000
"""Runs that one chart is made of at most."""
FRESH_SECONDS: Final = 3.0


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
    """The steps, oldest first; `since` is the instant from which on all is counted."""

    steps: list[HistoryStep]
    step: int
    since: int
    complete: bool
    last_hour_failed: int

    @property
    def succeeded(self) -> int:
        """How many runs succeeded."""
        return sum(step.succeeded for step in self.steps)

    @property
    def failed(self) -> int:
        """How many runs failed."""
        return sum(step.failed for step in self.steps)


def read_history(view: View, chosen: HistoryRange) -> RunHistory:
    """Count the runs that ended in a range; viewers share what was read."""
    return view.cached(f"history {chosen.words}", FRESH_SECONDS, lambda: _read(view, chosen))


def _read(view: View, chosen: HistoryRange) -> RunHistory:
    step = chosen.seconds * SECOND // chosen.steps
    end = (view.now // step + 1) * step
    start = end - step * chosen.steps
    good, bad, last_hour = [0] * chosen.steps, [0] * chosen.steps, 0
    page = view.app.find(since=timedelta(seconds=chosen.seconds), limit=MOST_RUNS)
    for run in page:
        ended = run.record.finished_at
        if ended is None or not start <= ended < end:
            continue
        place = (ended - start) // step
        if run.status is Status.SUCCEEDED:
            good[place] += 1
        elif run.status in (Status.FAILED, Status.BROKEN):
            bad[place] += 1
            last_hour += ended > view.now - 3600 * SECOND
    since = page[-1].record.created_at if page.more else start
    steps = [HistoryStep(start + number * step, good[number], bad[number]) for number in range(chosen.steps)]
    return RunHistory(steps, step, since, not page.more, last_hour)
