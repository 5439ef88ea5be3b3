"""The small parts that the descriptions of triggers share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Final

from mainspring.core.instants import SECOND, from_us
from mainspring.triggers.zones import Zone

__all__ = ["DAY_NAMES", "every", "join", "ordinal", "shown_moment", "shown_zone", "span", "wall_text", "with_options"]

DAY_NAMES: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_UNITS: Final = (("day", 86_400 * SECOND), ("hour", 3600 * SECOND), ("minute", 60 * SECOND), ("second", SECOND))

_MOST_OF_A_UNIT: Final = 120


def join(words: Sequence[str], last: str = "and") -> str:
    """Write a list: `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def ordinal(number: int) -> str:
    """Write 1st, 2nd, 3rd, 4th, 11th, 21st."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def every(count: int, unit: str) -> str:
    """Write `every hour` or `every 2 hours`."""
    return f"every {unit}" if count == 1 else f"every {count} {unit}s"


def span(microseconds: int) -> str:
    """Write `every hour`, `every 90 seconds` or `every 1 day 2 hours`; a day of real time is 24 hours."""
    for unit, size in _UNITS:
        count, rest = divmod(microseconds, size)
        if not rest and 0 < count <= _MOST_OF_A_UNIT:
            return "every 24 hours" if unit == "day" and count == 1 else every(count, unit)
    parts = []
    for unit, size in _UNITS[:-1]:
        count, microseconds = divmod(microseconds, size)
        if count:
            parts.append(f"{count} {unit}{'s' if count > 1 else ''}")
    if microseconds:
        seconds = microseconds / SECOND
        parts.append("1 second" if seconds == 1 else f"{seconds:.6f}".rstrip("0").rstrip(".") + " seconds")
    return f"every {' '.join(parts)}"


def shown_moment(instant: int, zone: Zone) -> str:
    """Write a time in its zone to the minute, or to the second if it does not fall on a whole minute."""
    moment = from_us(instant, zone.tz)
    time = "%H:%M" if not (moment.second or moment.microsecond) else "%H:%M:%S"
    return moment.strftime(f"%Y-%m-%d {time}")


def wall_text(wall: int) -> str:
    """Write a local time in ISO 8601."""
    return from_us(wall).replace(tzinfo=None).isoformat()


def shown_zone(zone: Zone) -> str:
    """Write the name of a zone."""
    if zone.tz is UTC:
        return "UTC"
    return zone.key or str(zone.tz)


def with_options(
    text: str, zone: Zone, *, start: int | None = None, end: int | None = None, jitter: float | None = None
) -> str:
    """Add the bounds, in the zone, and the jitter to a description."""
    if start is not None:
        text += f", from {shown_moment(start, zone)}"
    if end is not None:
        text += f", until {shown_moment(end, zone)}"
    if jitter:
        text += f", up to {jitter:g} s later"
    return text
