"""Read the events of an iCalendar text (RFC 5545) as exclusions.

This module reads VEVENTs: DTSTART, DTEND or DURATION, as dates or as times (UTC, floating, or with an IANA name as
TZID); RRULE with FREQ=YEARLY and INTERVAL, COUNT, UNTIL, BYMONTH, BYMONTHDAY, BYDAY; EXDATE; STATUS. It refuses
anything else that changes when an event takes place, so that no exclusion is silently wrong.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from mainspring.core.instants import to_us
from mainspring.triggers.exclusions.rules import Exclusions, wall_of
from mainspring.triggers.zones import astimezone, day_number

__all__ = ["events_of"]

LAST_YEAR: Final = 2099
"""The last year for events that recur without an end and on no fixed date."""
_LONGEST_YEARLY: Final = timedelta(days=31)
_REFUSED: Final = ("RDATE", "RECURRENCE-ID", "EXRULE")
_RULE_PARTS: Final = {"FREQ", "INTERVAL", "COUNT", "UNTIL", "BYMONTH", "BYMONTHDAY", "BYDAY", "WKST"}
_WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_BY_DAY: Final = re.compile(rf"([+-]?\d)({'|'.join(_WEEKDAYS)})")
_DURATION: Final = re.compile(r"\+?P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")


class _Property(NamedTuple):
    value: str
    options: Mapping[str, str]


Event = dict[str, list[_Property]]


def events_of(text: str) -> Exclusions:
    """Return the times of all events; raise ValueError for a feature that is not supported."""
    found: list[Exclusions] = []
    number = 0
    for number, event in enumerate(_events(text), 1):
        status = event.get("STATUS")
        if status and status[0].value.upper() == "CANCELLED":
            continue
        try:
            found.append(_times(event))
        except ValueError as error:
            title = event.get("SUMMARY") or event.get("UID")
            raise ValueError(f"event {title[0].value if title else number!r}: {error}") from error
    if not number:
        raise ValueError("there is no event (VEVENT) in it")
    return Exclusions.together(found)


# -- lines ---------------------------------------------------------------------------------------------------------


def _events(text: str) -> Iterator[Event]:
    lines = re.sub(r"\r?\n[ \t]", "", text).splitlines()
    if not any(line.strip().upper() == "BEGIN:VCALENDAR" for line in lines[:5]):
        raise ValueError("this is not an iCalendar file: it does not begin with BEGIN:VCALENDAR")
    inside: list[str] = []
    event: Event = {}
    for line in filter(str.strip, lines):
        name, prop = _property(line)
        if name == "BEGIN":
            inside.append(prop.value.upper())
            if inside[-1] == "VEVENT":
                event = {}
        elif name == "END":
            if inside and inside.pop() == "VEVENT":
                yield event
        elif inside and inside[-1] == "VEVENT":  # not inside an alarm of the event
            event.setdefault(name, []).append(prop)
    if inside:
        raise ValueError(f"it ends before END:{inside[-1]}")


def _property(line: str) -> tuple[str, _Property]:
    """Split `NAME;OPTION=value:text`; a quoted value of an option may contain any character."""
    head, colon, value = line.partition(":")
    while colon and head.count('"') % 2:
        more, colon, value = value.partition(":")
        head = f"{head}:{more}"
    name, *options = re.split(r';(?=(?:[^"]*"[^"]*")*[^"]*$)', head)
    pairs = (option.partition("=") for option in options)
    return name.strip().upper(), _Property(value.strip(), {key.upper(): text.strip('"') for key, _, text in pairs})


# -- one event -----------------------------------------------------------------------------------------------------


def _times(event: Event) -> Exclusions:
    for name in _REFUSED:
        if name in event:
            raise ValueError(f"{name} is not supported; write its dates as events of their own")
    if "DTSTART" not in event:
        raise ValueError("it has no DTSTART")
    start = _moment(event["DTSTART"][0])
    length = _length(event, start)
    rule = event.get("RRULE")
    if rule is None:
        return _exclusions([start], length)
    if len(rule) > 1:
        raise ValueError("it has several RRULEs")
    left_out = {_as_date(_moment(_Property(text, prop.options))) for prop in event.get("EXDATE", ())
                for text in prop.value.split(",")}  # fmt: skip
    parts = _rule(rule[0].value)
    endless = (
        not parts.keys() & {"COUNT", "UNTIL", "BYMONTH", "BYMONTHDAY", "BYDAY"} and parts.get("INTERVAL", "1") == "1"
    )
    if endless and not left_out and not isinstance(start, datetime) and length <= _LONGEST_YEARLY:
        days = (start + timedelta(days=number) for number in range(length.days))
        return Exclusions(yearly=[(day.month, day.day) for day in days])
    dates = [day for day in _yearly(start, parts) if day not in left_out]
    at = [day if not isinstance(start, datetime) else datetime.combine(day, start.timetz()) for day in dates]
    return _exclusions(at, length)


def _exclusions(starts: list[date], length: timedelta) -> Exclusions:
    days, walls, spans = [], [], []
    for start in starts:
        if not isinstance(start, datetime):
            days.append((day_number(start), day_number(start + length)))
        elif start.tzinfo is None:
            walls.append((wall_of(start), wall_of(start + length)))
        else:
            spans.append((to_us(start), to_us(start) + length // timedelta(microseconds=1)))
    return Exclusions(days=days, walls=walls, spans=spans)


def _as_date(moment: date) -> date:
    return moment.date() if isinstance(moment, datetime) else moment


def _moment(prop: _Property) -> date:
    """Read a date, or a time in UTC, in a zone, or by the local clock."""
    text = prop.value
    try:
        if "T" not in text:
            return datetime.strptime(text, "%Y%m%d").date()
        moment = datetime.strptime(text.removesuffix("Z"), "%Y%m%dT%H%M%S")
    except ValueError:
        raise ValueError(f"{text!r} is not a date or time of an iCalendar file") from None
    if text.endswith("Z"):
        return moment.replace(tzinfo=UTC)
    return moment.replace(tzinfo=astimezone(prop.options["TZID"])) if "TZID" in prop.options else moment


def _length(event: Event, start: date) -> timedelta:
    if "DTEND" in event:
        end = _moment(event["DTEND"][0])
        if isinstance(start, datetime) != isinstance(end, datetime):
            raise ValueError("of DTSTART and DTEND, one is a date and one a time")
        if isinstance(start, datetime) and isinstance(end, datetime) and (start.tzinfo is None) != (end.tzinfo is None):
            raise ValueError("of DTSTART and DTEND, one has a time zone and one has none")
        length = _between(start, end)
    elif "DURATION" in event:
        length = _duration(event["DURATION"][0].value)
    elif isinstance(start, datetime):
        raise ValueError("it has neither DTEND nor DURATION")
    else:
        length = timedelta(days=1)
    if length <= timedelta():
        raise ValueError("it ends before it begins, or at once")
    if not isinstance(start, datetime) and length % timedelta(days=1):
        raise ValueError("it begins on a date and takes a part of a day")
    return length


def _between(start: date, end: date) -> timedelta:
    if isinstance(start, datetime) and isinstance(end, datetime) and start.tzinfo is not None:
        return timedelta(microseconds=to_us(end) - to_us(start))
    return end - start


def _duration(text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a duration")
    weeks, days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return timedelta(days, seconds, 0, 0, minutes, hours, weeks)


# -- recurring events ----------------------------------------------------------------------------------------------


def _rule(text: str) -> dict[str, str]:
    parts = dict(part.upper().partition("=")[::2] for part in text.split(";") if part)
    unknown = sorted(parts.keys() - _RULE_PARTS)
    if parts.get("FREQ") != "YEARLY":
        raise ValueError(
            f"RRULE {text!r} is not supported: only FREQ=YEARLY is; write weekly times as exclude='sat 02:00-04:00'"
        )
    if unknown:
        raise ValueError(f"RRULE {text!r} is not supported: {unknown[0]} is not read")
    return parts


def _yearly(start: date, parts: Mapping[str, str]) -> Iterator[date]:
    """Yield the dates of a yearly rule."""
    first = _as_date(start)
    until = _as_date(_moment(_Property(parts["UNTIL"], {}))) if "UNTIL" in parts else date(LAST_YEAR, 12, 31)
    left = _number(parts, "COUNT", 10_000)
    for year in range(first.year, min(until.year, LAST_YEAR) + 1, _number(parts, "INTERVAL", 1)):
        for day in sorted(set(_of_year(year, first, parts))):
            if first <= day <= until and left > 0:
                left -= 1
                yield day


def _number(parts: Mapping[str, str], name: str, otherwise: int) -> int:
    text = parts.get(name)
    if text is not None and (not text.isdigit() or not int(text)):
        raise ValueError(f"RRULE: {name}={text!r} is not a positive number")
    return otherwise if text is None else int(text)


def _of_year(year: int, first: date, parts: Mapping[str, str]) -> Iterator[date]:
    by_day, by_month_day = parts.get("BYDAY"), parts.get("BYMONTHDAY")
    months = _numbers(parts.get("BYMONTH"), 12) or [first.month]
    if by_day and (by_month_day or "BYMONTH" not in parts):
        raise ValueError("RRULE: BYDAY is supported together with BYMONTH, as in BYMONTH=11;BYDAY=4TH")
    for month in months:
        size = monthrange(year, month)[1]
        if by_day:
            yield from (_nth_weekday(year, month, size, text) for text in by_day.split(","))
            continue
        for day in _numbers(by_month_day, 31) or [first.day]:
            number = day if day > 0 else size + 1 + day
            if 1 <= number <= size:
                yield date(year, month, number)


def _nth_weekday(year: int, month: int, size: int, text: str) -> date:
    found = _BY_DAY.fullmatch(text)
    if found is None or not 1 <= abs(int(found[1])) <= 4:
        raise ValueError(f"RRULE: BYDAY={text} is not supported; write 1MO to 4SU, or -1MO for the last one")
    nth, weekday = int(found[1]), _WEEKDAYS.index(found[2])
    if nth > 0:
        first = (weekday - date(year, month, 1).weekday()) % 7 + 1
        return date(year, month, first + 7 * (nth - 1))
    last = size - (date(year, month, size).weekday() - weekday) % 7
    return date(year, month, last + 7 * (nth + 1))


def _numbers(text: str | None, most: int) -> list[int]:
    if not text:
        return []
    try:
        found = [int(each) for each in text.split(",")]
    except ValueError:
        found = [0]
    if not all(1 <= abs(each) <= most for each in found):
        raise ValueError(f"RRULE: {text!r} are not numbers from 1 to {most}")
    return found
