"""The stretch of time that a timeline shows: a usual one around now, or one that somebody has chosen."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, NamedTuple

from mainspring.core.instants import SECOND, from_us, to_us
from mainspring.core.quantities import read_seconds
from mainspring.dashboard.page import BadParameter, View

__all__ = ["RANGES", "ChosenStretch", "chosen_stretch", "zoom"]

RANGES: Final = {"6h": (1, 5), "24h": (6, 18), "7d": (24, 144)}
"""Hours back and ahead."""
ANCHOR_US: Final = 600 * SECOND
"""The axis moves this often, so that it is not sent anew each second."""
SHORTEST_US: Final = 60 * SECOND
LONGEST_US: Final = 62 * 86_400 * SECOND
FURTHEST_US: Final = 3660 * 86_400 * SECOND
_RELATIVE: Final = re.compile(r"([+-]?)\s*([\w.]+)")


class ChosenStretch(NamedTuple):
    """A stretch: its ends, the name of its range if it is a usual one, and whether somebody chose its ends."""

    since: int
    until: int
    span: str
    chosen: bool


def chosen_stretch(view: View) -> ChosenStretch:
    """Read the stretch from the address: `from` and `to`, or `range`."""
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
    """Read a moment: `-6h`, `+90m`, `now`, or a date and time, which is in the zone of the page unless it names one."""
    if text == "now":  # whole minutes, so that it is not drawn anew each second; `to` includes the one that goes on
        return (view.now // SHORTEST_US + (name == "to")) * SHORTEST_US
    relative = _RELATIVE.fullmatch(text)
    seconds = read_seconds(relative[2]) if relative is not None and relative[1] else None
    if relative is not None and seconds is not None:
        found = (view.now + int(seconds * SECOND) * (-1 if relative[1] == "-" else 1)) // SHORTEST_US * SHORTEST_US
    else:
        try:
            moment = datetime.fromisoformat(text.replace(" ", "+"))  # a plus in an address is a blank
        except ValueError:
            raise BadParameter(f"{name}={text!r} is no moment; write 2026-10-25T01:00, -6h or now") from None
        found = to_us(moment if moment.tzinfo else moment.replace(tzinfo=view.times.zone))
    if abs(found - view.now) > FURTHEST_US:
        raise BadParameter(f"{name}={text!r} is more than ten years away")
    return found


def zoom(view: View, stretch: ChosenStretch) -> dict[str, str]:
    """Return the links around a timeline: each leads to another stretch."""
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
