"""Read and check durations, times and numbers: a check returns the value to keep, or raises an error. Pure."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from mainspring.core.instants import SECOND, from_us, to_us
from mainspring.errors import ConfigurationError

__all__ = [
    "LONGEST_DELAY_SECONDS",
    "as_seconds",
    "check_count",
    "check_lease",
    "check_number",
    "check_seconds",
    "check_timeout",
    "read_seconds",
    "read_time",
    "read_value",
]

LONGEST_DELAY_SECONDS: Final = 10_000_000_000
"""The longest delay that every store can add to its time: 317 years."""
LARGEST_COUNT: Final = 2**31 - 1
"""The largest count that every store and driver can keep."""
SHORTEST_LEASE_SECONDS: Final = 1.0
LONGEST_LEASE_SECONDS: Final = 86_400.0
_UNITS: Final = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_LENGTH: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
_CLOCK_TIME: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


def read_seconds(text: str) -> float | None:
    """Return the seconds of a text such as `90s` or `1h30m`; None if it is not a length of time."""
    parts = _LENGTH.findall(text)
    if not parts or _LENGTH.sub("", text).strip() or any(unit not in _UNITS for _, unit in parts):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def read_time(text: str, now: datetime, direction: int) -> datetime:
    """Read a time after now, or before it if `direction` is -1: a length such as `5m`, a time of day, or a date.

    A time without a zone is in that of `now`. Raise ValueError or OverflowError for any other text.
    """
    length = read_seconds(text)
    if length is not None:
        # Count real time: the wall clock has an hour too many or too few if it is changed in between.
        return from_us(to_us(now) + direction * round(length * SECOND), now.tzinfo or UTC)
    if clock := _CLOCK_TIME.fullmatch(text):
        moment = now.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
        has_passed = moment <= now
        return moment if has_passed == (direction < 0) else moment + timedelta(days=direction)
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=now.tzinfo)


def read_value(text: str) -> Any:
    """Parse a value that a person typed: as JSON if it is JSON, else as text."""
    import json  # slow to import, and an app does not need it to start

    try:
        return json.loads(text)
    except ValueError:
        return text


def as_seconds(value: Any) -> float | None:
    """Return a duration as a plain number of seconds; None if it is neither a number nor a timedelta."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if isinstance(value, int) else float(value)  # stores reject numpy's floats


def check_seconds(
    name: str, value: Any, *, least: float = 0.0, most: float = LONGEST_DELAY_SECONDS, text: bool = False
) -> float:
    """Check a number of seconds (or a timedelta) between two bounds; with `text`, accept it as text, too."""
    given = _from_text(value) if text else value
    return _between(name, "number of seconds (or a timedelta)", value, as_seconds(given), least, most)


def check_number(name: str, value: Any, *, least: float, most: float) -> float:
    """Check a number between two bounds."""
    return _between(name, "number", value, None if isinstance(value, timedelta) else as_seconds(value), least, most)


def _between(name: str, kind: str, value: Any, number: float | None, least: float, most: float) -> float:
    if number is None or not least <= number <= most:  # nan is not between any two numbers
        bounds = f"of at least {least:g}" if most == math.inf else f"from {least:g} to {most:,.0f}"
        raise ConfigurationError(f"{name} must be a {kind} {bounds}, not {value!r}")
    return number


def check_lease(value: Any, *, text: bool = False) -> float:
    """Check the length of a lease, which is how long a claim holds unless its node renews it."""
    return check_seconds("lease", value, least=SHORTEST_LEASE_SECONDS, most=LONGEST_LEASE_SECONDS, text=text)


def check_timeout(value: Any) -> float:
    """Return a time-out in seconds; None and infinity mean no limit."""
    if value is None:
        return math.inf
    seconds = as_seconds(value)
    if seconds is None or math.isnan(seconds):
        raise TypeError(f"timeout must be None, a number of seconds or a timedelta, not {value!r}")
    return seconds


def check_count(name: str, value: Any, *, least: int = 1, most: int = LARGEST_COUNT, text: bool = False) -> int:
    """Check a whole number between two bounds; with `text`, accept it as text, too."""
    number = _from_text(value) if text else value
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise ConfigurationError(f"{name} must be a whole number of at least {least}, not {value!r}")
    if number > most:
        raise ConfigurationError(f"{name} must be a whole number from {least} to {most:,}, not {value!r}")
    return int(number)


def _from_text(value: Any) -> Any:
    """Return the number that a text spells, as in an INI file; return any other value unchanged."""
    if not isinstance(value, str):
        return value
    try:
        number = float(value)
    except ValueError:
        return value
    return int(number) if number.is_integer() else number
