"""Describe exclusions in plain English."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Final

from mainspring.core.instants import from_us
from mainspring.triggers.words import DAY_NAMES, join, wall_text
from mainspring.triggers.zones import date_of

if TYPE_CHECKING:
    from mainspring.triggers.exclusions.rules import Exclusions

__all__ = ["describe", "texts"]

_SHORT: Final = tuple(name[:3] for name in DAY_NAMES)
_DAY_SECONDS: Final = 86_400
_MOST_SHOWN: Final = 3
"""Name at most this many exclusions of a kind; if there are more, give their number instead."""


def describe(exclusions: Exclusions) -> str:
    """Describe exclusions in words, such as `weekends, 12:00-13:00 and 25 December`."""
    words = [*_weekly(exclusions), *_yearly(exclusions), *_dates(exclusions), *_spans(exclusions)]
    return join(words) if words else ""


def texts(exclusions: Exclusions) -> list[str]:
    """Return the exclusions as texts that can be read back."""
    whole, windows = _week(exclusions)
    found = [",".join(_SHORT[day].lower() for day in sorted(whole))] if whole else []
    for (begin, end), days in sorted(windows.items()):
        found.append(f"{','.join(_SHORT[day].lower() for day in days)} {_clock(begin)}-{_clock(end)}")
    found += [f"{month:02}-{day:02}" for month, day in exclusions.yearly]
    for first, after in exclusions.days:
        found.append(f"{date_of(first)}" if after == first + 1 else f"{date_of(first)}..{date_of(after - 1)}")
    found += [f"{wall_text(start)}..{wall_text(end)}" for start, end in exclusions.walls]
    return found + [f"{wall_text(start)}+00:00..{wall_text(end)}+00:00" for start, end in exclusions.spans]


def _week(exclusions: Exclusions) -> tuple[set[int], dict[tuple[int, int], list[int]]]:
    """Return the weekdays that are excluded as a whole, and the windows on the other days, each with its weekdays."""
    whole: set[int] = set()
    windows: dict[tuple[int, int], list[int]] = {}
    for start, end in _over_midnight(exclusions.weekly):
        while start < end:
            day, begin = divmod(start, _DAY_SECONDS)
            midnight = (day + 1) * _DAY_SECONDS
            if not begin and end >= midnight:
                whole.add(day % 7)
                start = midnight
                continue
            stop = end if end - start < _DAY_SECONDS else midnight
            windows.setdefault((begin, stop - day * _DAY_SECONDS), []).append(day % 7)
            start = stop
    return whole, windows


def _over_midnight(stretches: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join a stretch at the end of the week with the one at its beginning."""
    found, week = list(stretches), 7 * _DAY_SECONDS
    if len(found) > 1 and found[0][0] == 0 and found[-1][1] == week and found[0][1] % _DAY_SECONDS:
        found[-1] = found[-1][0], week + found.pop(0)[1]
    return found


def _weekly(exclusions: Exclusions) -> list[str]:
    whole, windows = _week(exclusions)
    words = []
    if whole == {5, 6}:
        words.append("weekends")
    elif whole:
        words.append(join([f"{DAY_NAMES[day]}s" for day in sorted(whole)]))
    return words + [
        f"{'' if len(days) == 7 else _short_days(days) + ' '}{_clock(begin)}-{_clock(end)}"
        for (begin, end), days in sorted(windows.items())
    ]


def _short_days(days: Sequence[int]) -> str:
    if len(days) > 2 and days == list(range(days[0], days[0] + len(days))):
        return f"{_SHORT[days[0]]}-{_SHORT[days[-1]]}"
    return ",".join(_SHORT[day] for day in days)


def _clock(seconds: int) -> str:
    hours, rest = divmod(seconds, 3600)
    text = f"{hours % 24 if hours != 24 else 24:02}:{rest // 60:02}"
    return text if not rest % 60 else f"{text}:{rest % 60:02}"


def _yearly(exclusions: Exclusions) -> list[str]:
    if len(exclusions.yearly) > _MOST_SHOWN:
        return [f"{len(exclusions.yearly)} days of every year"]
    return [f"{day} {date(2000, month, day):%B}" for month, day in exclusions.yearly]


def _dates(exclusions: Exclusions) -> list[str]:
    days = [(date_of(first), date_of(after - 1)) for first, after in exclusions.days]
    if len(days) > _MOST_SHOWN:
        number = sum(after - first for first, after in exclusions.days)
        return [f"{number:,} dates from {days[0][0]} to {days[-1][1]}"]
    return [str(first) if first == last else f"{first} to {last}" for first, last in days]


def _spans(exclusions: Exclusions) -> list[str]:
    words = []
    for stretches, zone in ((exclusions.walls, ""), (exclusions.spans, " UTC")):
        if len(stretches) > _MOST_SHOWN:
            first, last = _moment(stretches[0][0]), _moment(stretches[-1][1])
            words.append(f"{len(stretches):,} spans of time from {first} to {last}{zone}")
        else:
            words += [f"{_moment(start)} to {_moment(end)}{zone}" for start, end in stretches]
    return words


def _moment(us: int) -> str:
    return f"{from_us(us):%Y-%m-%d %H:%M}"
