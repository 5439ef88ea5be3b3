"""Parse the datetimes, dates and texts that people give into instants."""

from __future__ import annotations

from datetime import date, datetime, tzinfo
from typing import Any

from mainspring.core.instants import from_us, to_us
from mainspring.triggers.zones import Zone, astimezone, zone_of

__all__ = ["check_order", "given_zone", "instant_of", "read_datetime"]


def instant_of(value: object, zone: Zone, name: str) -> int:
    """Read an instant from a datetime, date or text, the argument `name`; read a naive one in `zone`."""
    return to_us(read_datetime(value, name), zone)


def read_datetime(value: object, name: str) -> datetime:
    """Read a datetime, naive or aware, from the argument `name`."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, str):
        return _parse(value, name)
    raise TypeError(f"{name} is a datetime, a date or a text such as '2026-03-29 02:30:00', not {value!r}")


def _parse(text: str, name: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    import re

    match = re.fullmatch(
        r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?(Z|[+-]\d\d:\d\d)?)?",
        text,
    )
    if match:
        *numbers, fraction, offset = match.groups()
        year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
        try:
            moment = datetime(year, month, day, hour, minute, second, int((fraction or "0").ljust(6, "0")))
        except ValueError as error:
            raise ValueError(f"{name}: {text!r} is not a date: {error}") from None
        return moment.replace(tzinfo=astimezone(offset)) if offset else moment
    raise ValueError(
        f"{name}: {text!r} is not a date or time; write '2026-03-29', '2026-03-29 02:30:00'"
        " or, with an offset, '2026-03-29T02:30:00+02:00'"
    )


def given_zone(timezone: str | tzinfo | None, *dates: Any) -> Zone | None:
    """Return the zone of a trigger's arguments: `timezone`, else that of the first aware datetime, else None."""
    if timezone:
        return zone_of(astimezone(timezone))
    for moment in dates:
        if isinstance(moment, datetime) and moment.tzinfo is not None:
            return zone_of(astimezone(moment.tzinfo))
    return None


def check_order(owner: str, start: int | None, end: int | None, zone: Zone) -> None:
    """Raise ValueError if `end` is before `start`."""
    if start is not None and end is not None and end < start:
        raise ValueError(f"{owner}: end_date {from_us(end, zone.tz)} is before start_date {from_us(start, zone.tz)}")
