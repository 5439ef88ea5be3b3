"""Lengths of time, moments and numbers in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import Final

from mainspring.core.instants import from_us

__all__ = ["brief", "due", "duration", "held_runs", "listed", "moment", "several", "took"]

BRIEF: Final = 200
"""Quote at most this many characters of a message."""
_WEEK: Final = 6 * 86_400 * 1_000_000


def duration(us: int) -> str:
    """Return a length of time in words: the two largest of its units."""
    seconds = max(0, round(us / 1e6))
    parts = [(seconds // 86_400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    while len(parts) > 1 and not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{number} {unit}" for number, unit in parts[:2] if number or unit == "s") or "0 s"


def took(us: int) -> str:
    """Return a length of time in words, also one below a second."""
    if us < 100_000:
        return f"{max(0, us) / 1000:.0f} ms"
    return f"{us / 1e6:.1f} s" if us < 10_000_000 else duration(us)


def moment(us: int, zone: tzinfo, now: int) -> str:
    """Return an instant as people say it: the time if it is today, the weekday if it is near, else the date."""
    there, here = from_us(us, zone), from_us(now, zone)
    if there.date() == here.date():
        return f"{there:%H:%M:%S %Z}"
    return f"{there:%a %H:%M %Z}" if abs(us - now) < _WEEK else f"{there:%Y-%m-%d %H:%M %Z}"


def due(us: int, zone: tzinfo, now: int) -> str:
    """Say when an instant comes and how soon, or how much it is overdue."""
    if us > now:
        return f"next {moment(us, zone, now)}, in {duration(us - now)}"
    return f"overdue since {moment(us, zone, now)}, by {duration(now - us)}"


def several(number: int, one: str, many: str = "") -> str:
    """Return a number with the right form of its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(names: Sequence[str], most: int) -> str:
    """Return names with commas between them: the first ones, and how many more there are."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown


def held_runs(waiting: int, delayed: int) -> str:
    """Say how many runs a queue holds, such as `12 runs waiting and 3 for later`; leave out an empty part."""
    if not waiting and delayed:
        return f"{several(delayed, 'run')} for later"
    return f"{several(waiting, 'run')} waiting{f' and {delayed:,} for later' if delayed else ''}"


def brief(text: str, most: int = BRIEF) -> str:
    """Return a text in one line without control characters, cut at the limit."""
    line = " ".join(text.split())
    line = line if line.isprintable() else "".join(each if each.isprintable() else repr(each)[1:-1] for each in line)
    return line if len(line) <= most else f"{line[: most - 1]}…"
