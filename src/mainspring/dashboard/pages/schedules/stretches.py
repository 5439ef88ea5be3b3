"""The time range of a timeline: a standard one around the present, or one that the visitor chose."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, NamedTuple

from mainspring.core.instants import SECOND, from_us, to_us
from mainspring.core.quantities import read_seconds
from mainspring.dashboard.page import BadParameter, View

__all__ = ["RANGES", "ChosenStretch", "chosen_stretch", "zoom"]

RANGES: Final = {"6h": (1, 5), "24h": (6, 18), "7d": (24, 144)}
"""Hours back and ahead, by the name of a range."""
ANCHOR_US: Final = 600 * SECOND
"""The step by which the axis moves, so that it is not sent again every second."""
SHORTEST_US: Final = 60 * SECOND
LONGEST_US: Final = 62 * 86_400 * SECOND
FURTHEST_US: Final = 3660 * 86_400 * SECOND
_RELATIVE: Final = re.compile(r"([+-]?)\s*([\w.]+)")


class ChosenStretch(NamedTuple):
    """A time range: its ends, its name if it is a standard one, and whether the visitor chose its ends."""

    since: int
    until: int
    span: str
    chosen: bool


def chosen_stretch(view: View) -> ChosenStretch:
    """Read the time range from the address: `from` and `to`, or `range`."""
    first, last = view.text("from", most=40), view.text("to", most=40)
    span = view.choice("range", RANGES, "24h")
    back, ahead = RANGES[span]
    anchor = view.now // ANCHOR_US * ANCHOR_US
    usual = ChosenStretch(anchor - back * 3600 * SECOND, anchor + ahead * 3600 * SECOND, span, False)
    if not first and not last:
        return usual
    since = _instant(view, "from", first) if first else usual.since
    until = _instant(view, "to", last) if last else usual.until
    if first == last or not SHORTEST_US <= until - since <= LONGEST_US:
        raise BadParameter("to lies at least a minute after from, and at most 62 days")
    return ChosenStretch(since, until, "", True)


def _instant(view: View, name: str, text: str) -> int:
    """Read a moment: `-6h`, `+90m`, `now`, or a date and time, in the page's zone unless it names another."""
    if text == "now":  # whole minutes, so that it is not redrawn every second; `to` includes the current minute
        return (view.now // SHORTEST_US + (name == "to")) * SHORTEST_US
    relative = _RELATIVE.fullmatch(text)
    seconds = read_seconds(relative[2]) if relative is not None and relative[1] else None
    if relative is not None and seconds is not None:
        found = (view.now + int(seconds * SECOND) * (-1 if relative[1] == "-" else 1)) // SHORTEST_US * SHORTEST_US
    else:
        try:
            moment = datetime.fromisoformat(text.replace(" ", "+"))  # a plus in an address arrives as a blank
        except ValueError:
            raise BadParameter(f"{name}={text!r} is no moment; write 2026-10-25T01:00, -6h or now") from None
        found = to_us(moment if moment.tzinfo else moment.replace(tzinfo=view.times.zone))
    if abs(found - view.now) > FURTHEST_US:
        raise BadParameter(f"{name}={text!r} is more than ten years away")
    return found


def zoom(view: View, stretch: ChosenStretch) -> dict[str, str]:
    """Return the links around a timeline, each to another time range."""
    length = stretch.until - stretch.since
    middle = (stretch.since + stretch.until) // 2

    def link(since: int, until: int) -> str:
        return view.change(range="", **{"from": _text(view, since), "to": _text(view, until)})

    closer = max(SHORTEST_US, length // 2)
    wider = min(LONGEST_US, length * 2)
    return {
        "earlier": link(stretch.since - length // 2, stretch.until - length // 2),
        "later": link(stretch.since + length // 2, stretch.until + length // 2),
        "closer": link(middle - closer // 2, middle + closer // 2),
        "wider": link(middle - wider // 2, middle + wider // 2),
        "whole": view.change(**{"from": "", "to": ""}),
    }


def _text(view: View, at: int) -> str:
    return from_us(at // SECOND * SECOND).astimezone(view.times.zone).isoformat()
