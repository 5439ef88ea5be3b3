"""Parse the exclusions that people write: dates, weekdays, windows and spans, as Python values or as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date, datetime, time
from itertools import islice
from os import PathLike
from typing import Any, Final

from mainspring.core.instants import to_us
from mainspring.errors import near
from mainspring.triggers.exclusions.rules import MOST_EXCLUSIONS, Exclusions, Stretch, wall_of
from mainspring.triggers.words import DAY_NAMES
from mainspring.triggers.zones import day_number

__all__ = ["exclusions_of"]

FileReader = Callable[["str | PathLike[str]"], Exclusions]
_WEEKDAYS: Final = tuple(map(str.lower, DAY_NAMES))
_GROUPS: Final = {"weekends": "sat,sun", "weekdays": "mon-fri"}
_DAY_SECONDS: Final = 86_400
_CLOCK: Final = r"(?:[01]?\d|2[0-4]):[0-5]\d(?::[0-5]\d)?"
_WINDOW: Final = re.compile(rf"(?:(?P<days>[a-z,\- ]+)\s+)?(?P<start>{_CLOCK})\s*-\s*(?P<end>{_CLOCK})")
_YEARLY: Final = re.compile(r"(\d\d)-(\d\d)")
_EXAMPLES: Final = (
    "'2026-12-24', '2026-12-24..2027-01-06', '12-25' (every year), 'sat,sun', 'weekends', '12:00-13:00', "
    "'sat 22:00-06:00' or 'holidays.ics'"
)


def exclusions_of(given: Any, read_file: FileReader) -> Exclusions:
    """Parse one exclusion, or an iterable of them; `read_file` reads an iCalendar file."""
    if isinstance(given, Exclusions):
        return given
    if given is None:
        return Exclusions()
    if isinstance(given, str):
        return _from_text(given.strip(), read_file)
    if isinstance(given, PathLike):
        return read_file(given)
    if isinstance(given, datetime):
        raise ValueError(f"exclude: {given!r} is a moment; give the span (start, end), or its date()")
    if isinstance(given, date):
        return Exclusions(days=[_days(given, given)])
    if isinstance(given, tuple) and len(given) == 2 and not any(isinstance(each, str | tuple) for each in given):
        pair = _from_pair(*given)
        if pair is not None:
            return pair
    if isinstance(given, Iterable):  # also a mapping of dates to the names of holidays
        return _together(given, read_file)
    raise TypeError(f"exclude takes dates, spans, weekdays and windows such as {_EXAMPLES}, not {given!r}")


def _together(items: Iterable[Any], read_file: FileReader) -> Exclusions:
    some = list(islice(items, MOST_EXCLUSIONS + 1))
    if len(some) > MOST_EXCLUSIONS:
        raise ValueError(f"exclude takes at most {MOST_EXCLUSIONS:,} dates and times")
    return Exclusions.together(exclusions_of(item, read_file) for item in some)


def _days(first: date, last: date) -> Stretch:
    if last < first:
        raise ValueError(f"exclude: {last} is before {first}")
    return day_number(first), day_number(last) + 1


def _from_pair(start: Any, end: Any) -> Exclusions | None:
    """Parse a span: two dates, both inclusive; two moments; or two times of day."""
    if isinstance(start, datetime) and isinstance(end, datetime):
        return _span(start, end)
    if isinstance(start, datetime) or isinstance(end, datetime):
        raise TypeError(f"exclude: a span has two dates or two moments, not {start!r} and {end!r}")
    if isinstance(start, date) and isinstance(end, date):
        return Exclusions(days=[_days(start, end)])
    if isinstance(start, time) and isinstance(end, time):
        return Exclusions(weekly=_windows(range(7), _seconds(start), _seconds(end)))
    return None


def _span(start: datetime, end: datetime) -> Exclusions:
    if (start.tzinfo is None) != (end.tzinfo is None):
        raise ValueError(f"exclude: of {start} and {end}, one has a time zone and one has none")
    if end <= start:
        raise ValueError(f"exclude: {end} is not after {start}")
    if start.tzinfo is None:
        return Exclusions(walls=[(wall_of(start), wall_of(end))])
    return Exclusions(spans=[(to_us(start), to_us(end))])


def _seconds(at: time) -> int:
    return (at.hour * 60 + at.minute) * 60 + at.second


def _windows(days: Iterable[int], start: int, end: int) -> list[Stretch]:
    """Return a window on some weekdays; if its end is before its start, it continues into the next day."""
    if start == end:
        raise ValueError("exclude: a window that ends when it begins is none; for a whole day name the weekday")
    length = end - start if end > start else end + _DAY_SECONDS - start
    return [(day * _DAY_SECONDS + start, day * _DAY_SECONDS + start + length) for day in days]


def _from_text(text: str, read_file: FileReader) -> Exclusions:
    if text.lower().endswith(".ics"):
        return read_file(text)
    word = text.lower()
    window = _WINDOW.fullmatch(word)
    if window is not None:
        days = range(7) if window["days"] is None else _weekdays(window["days"], text)
        return Exclusions(weekly=_windows(days, _time_of(window["start"], text), _time_of(window["end"], text)))
    if ".." in text:
        start, _, end = text.partition("..")
        first, last = _moment(start.strip(), text), _moment(end.strip(), text)
        found = _from_pair(first, last)
        assert found is not None
        return found
    yearly = _YEARLY.fullmatch(text)
    if yearly is not None:
        day = _date(f"2000-{text}", text)  # a leap year
        return Exclusions(yearly=[(day.month, day.day)])
    if text[:1].isdigit():
        return Exclusions(days=[_days(_date(text, text), _date(text, text))])
    days = _weekdays(word, text)
    if len(set(days)) == 7:
        raise ValueError(f"exclude leaves no time of the week: {text!r} is every weekday")
    return Exclusions(weekly=[(day * _DAY_SECONDS, (day + 1) * _DAY_SECONDS) for day in days])


def _time_of(text: str, whole: str) -> int:
    parts = [int(part) for part in text.split(":")]
    seconds = (parts[0] * 60 + parts[1]) * 60 + (parts[2] if len(parts) > 2 else 0)
    if seconds > _DAY_SECONDS:
        raise ValueError(f"exclude: {text!r} is not a time of day (in {whole!r})")
    return seconds


def _date(text: str, whole: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"exclude: {whole!r} is not a date or time; write {_EXAMPLES}") from None


def _moment(text: str, whole: str) -> date:
    """Read a date, or a date and a time."""
    try:
        return datetime.fromisoformat(text) if len(text) > 10 else date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"exclude: {whole!r} is not a span; write '2026-12-24..2027-01-06'") from None


def _weekdays(text: str, whole: str) -> list[int]:
    """Read `sat,sun`, `mon-fri`, `saturday` or `weekends`."""
    days: list[int] = []
    for part in _GROUPS.get(text.strip(), text).split(","):
        first, dash, last = (each.strip() for each in part.partition("-"))
        start = _weekday(first, whole)
        end = _weekday(last, whole) if dash else start
        days += [day % 7 for day in range(start, end + 1 if end >= start else end + 8)]
    return days


def _weekday(text: str, whole: str) -> int:
    found = [
        place for place, name in enumerate(_WEEKDAYS) if len(text) >= 3 and name.startswith(text.removesuffix("s"))
    ]
    if len(found) != 1:
        names = [name[:3] for name in _WEEKDAYS] + list(_GROUPS)
        raise ValueError(f"exclude: {whole!r} is not a date, weekday or window{near(text, names)}; write {_EXAMPLES}")
    return found[0]
