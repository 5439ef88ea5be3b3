"""Two charts over time: failures as bars hanging from a line, and waits as lines on a logarithmic scale. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from mainspring.dashboard.looks.charts import Deploy, Series, Step, axis_label, hit, line, lines, per_cent, rect, svg
from mainspring.dashboard.looks.clock_labels import ClockLabel

__all__ = ["hanging", "wait_chart"]

TOP: Final = 26
HEIGHT: Final = 44
_TICKS: Final = (
    *((0.001, "1 ms"), (0.01, "10 ms"), (0.1, "0.1 s"), (1.0, "1 s"), (10.0, "10 s")),
    *((60.0, "1 min"), (600.0, "10 min"), (3600.0, "1 h"), (36_000.0, "10 h"), (864_000.0, "10 d")),
)
NEAR: Final = 0.3
"""The share of the width below which neighbouring labels go to two rows."""


def hanging(steps: Sequence[Step], label: str, deploys: Sequence[Deploy] = ()) -> Markup:
    """Draw the failures in each step; `bad` of a step is the length of its bar."""
    worst = max((step.bad for step in steps), default=0) or 1
    width = 100 / max(1, len(steps))
    parts = [line("base", "0", "100%", TOP, TOP)]
    for number, step in enumerate(steps):
        x = number * width
        if step.bad:
            tall = max(3.0, step.bad / worst * HEIGHT)
            parts.append(rect("b-bad", per_cent(x + width * 0.12), TOP + 2, per_cent(width * 0.76), tall, 1))
        parts.append(hit(x, width, TOP + HEIGHT, step.tip))
        if step.label:
            parts.append(axis_label(x + width / 2, TOP + HEIGHT + 18, step.label, step.strong))
    last, row = -1.0, 0
    for deploy in deploys[-4:]:
        row, last = 1 - row if deploy.at - last < NEAR else 0, deploy.at
        place, side = per_cent(deploy.at * 100), "end" if deploy.at > 0.2 else ""
        parts.append(line("mk", place, place, 2, TOP + HEIGHT))
        text = '<text class="mk-t {} hide-s" x="{}" dx="{}" y="{}">{}</text>'
        parts.append(Markup(text).format(side, place, -5 if side else 5, 10 + 11 * row, deploy.text))
    return svg("chart", TOP + HEIGHT + 24, label, parts)


def wait_chart(series: Sequence[Series], times: Sequence[tuple[float, ClockLabel]], label: str) -> Markup:
    """Draw the seconds that runs waited, one line per series."""
    values = [value for each in series for value in each.values if value is not None]
    first = max((number for number, (tick, _) in enumerate(_TICKS) if tick <= min(values)), default=0)
    last = min((number for number, (tick, _) in enumerate(_TICKS) if tick >= max(values)), default=len(_TICKS) - 1)
    return lines(series, _TICKS[first : max(last, first + 1) + 1], times, label)
