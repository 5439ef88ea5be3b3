"""Labels of a time axis: round times of the local clock, and the day at midnight. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from mainspring.core.instants import SECOND
from mainspring.dashboard.looks.times import Times

__all__ = ["ClockLabel", "clock_labels"]

_DAY: Final = 86_400
_STEPS: Final = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600, 43_200)
_DAYS: Final = (1, 2, 5, 7, 14, 30, 90)
MOST_LABELS: Final = 8


class ClockLabel(NamedTuple):
    """The label of one step, or empty; a phone shows only `strong` ones."""

    text: str = ""
    strong: bool = False


def clock_labels(times: Times, begin: int, width: float, number: int) -> list[ClockLabel]:
    """Return a label for each of `number` steps of `width` microseconds, if the step contains a round time."""
    seconds = width * number / SECOND
    choices = (*_STEPS, *(each * _DAY for each in _DAYS))
    step = next((each for each in choices if seconds / each <= MOST_LABELS), choices[-1])
    found: list[ClockLabel] = []
    last, named = _ordinal(times.local(begin - 1)) // step, 0
    for place in range(number):
        reached = _ordinal(times.local(int(begin + (place + 1) * width) - 1)) // step
        if reached > last:  # not merely different: the clock may go back
            last, named = reached, named + 1
            found.append(ClockLabel(_text(reached * step, step), named % 2 == 1))
        else:
            found.append(ClockLabel())
    return found


def _ordinal(moment: datetime) -> int:
    """Return the seconds of the wall clock since the year 1."""
    return moment.toordinal() * _DAY + moment.hour * 3600 + moment.minute * 60 + moment.second


def _text(ordinal: int, step: int) -> str:
    moment = datetime.fromordinal(ordinal // _DAY) + timedelta(seconds=ordinal % _DAY)
    if step >= _DAY:
        return f"{moment:%-d %b}"
    if step < 60:
        return f"{moment:%H:%M:%S}"
    return f"{moment:%a %-d}" if ordinal % _DAY == 0 else f"{moment:%H:%M}"
