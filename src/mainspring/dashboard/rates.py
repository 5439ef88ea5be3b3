"""The runs that enter and leave each queue per minute, and their waits, from the counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from mainspring.core.insight.metrics import Counts, MetricSeries
from mainspring.core.insight.wording import took
from mainspring.core.instants import SECOND

if TYPE_CHECKING:
    from mainspring.dashboard.page import View

__all__ = ["RANGES", "QueueRate", "queue_rates", "rate_text", "waits_of"]

MINUTES: Final = 60
SHORT_MINUTES: Final = 5
"""The number of minutes from which to predict when a queue will be empty."""
GROWING_MINUTES: Final = 10
GROWING_RUNS: Final = 3
"""A queue grows if at least this many more runs came than left."""
FRESH_SECONDS: Final = 2.0
RANGES: Final = {"1h": (timedelta(hours=1), 12), "24h": (timedelta(days=1), 96), "7d": (timedelta(days=7), 84)}
"""The length of each range, and its number of steps."""
LEFT: Final = ("succeeded", "failed", "cancelled", "missed")


class QueueRate(NamedTuple):
    """The last hour of a queue, minute by minute, and its rates in the last five minutes."""

    ins: tuple[int, ...] = (0,) * MINUTES
    outs: tuple[int, ...] = (0,) * MINUTES
    waits_longer: bool = False

    @property
    def per_minute(self) -> tuple[float, float]:
        """The runs that recently came and left per minute, without the current, incomplete minute."""
        over = slice(-SHORT_MINUTES - 1, -1)
        return sum(self.ins[over]) / SHORT_MINUTES, sum(self.outs[over]) / SHORT_MINUTES

    @property
    def is_growing(self) -> bool:
        """Whether more runs came than left in ten minutes, and runs wait longer than before."""
        more = sum(self.ins[-GROWING_MINUTES - 1 : -1]) - sum(self.outs[-GROWING_MINUTES - 1 : -1])
        return more >= GROWING_RUNS and self.waits_longer

    def empty_in(self, waiting: int) -> str:
        """Return when the queue will be empty at these rates, or by how much it grows in an hour."""
        came, left = self.per_minute
        if not waiting:
            return ""
        if left > came:
            return took(int(waiting / (left - came) * 60 * SECOND))
        return f"+{(came - left) * 60:,.0f} an hour" if came > left and left else "never"


def queue_rates(view: View) -> Mapping[str, QueueRate]:
    """Return the rates of all queues used in the last hour; none if the store keeps no counters."""
    if not view.keeps_history:
        return {}
    return view.cached("queue rates", FRESH_SECONDS, lambda: _read(view))


def _read(view: View) -> dict[str, QueueRate]:
    found = view.app.metrics(timedelta(minutes=MINUTES), step=timedelta(minutes=1), by="queue")
    return {name: _rate(line) for name, line in found.lines.items() if name}


def _rate(line: Sequence[Counts]) -> QueueRate:
    last = line[-MINUTES:]
    before, lately = sum(last[-11:-6], Counts()).waited, sum(last[-6:], Counts()).waited
    longer = not lately.number or lately.total * before.number > before.total * lately.number
    outs = tuple(sum(each.of(event) for event in LEFT) for each in last)
    return QueueRate(tuple(each.of("added") for each in last), outs, longer)


def rate_text(rate: float) -> str:
    """Return a rate per minute as text."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}" if rate else "0"


def waits_of(view: View, chosen: str) -> MetricSeries:
    """Return the counters by queue over a range."""
    length, steps = RANGES[chosen]
    return view.cached(
        f"waits {chosen}", FRESH_SECONDS, lambda: view.app.metrics(length, step=length / steps, by="queue")
    )
