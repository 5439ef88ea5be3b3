"""Small helpers under the names that APScheduler's users know."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, Final, overload
from zoneinfo import ZoneInfo

from mainspring.core.instants import EPOCH, from_us, to_us
from mainspring.triggers.parsing import read_datetime
from mainspring.triggers.zones import astimezone, zone_of

if TYPE_CHECKING:
    from mainspring.core.references import (
        check_callable_args,
        get_callable_name,
        iscoroutinefunction_partial,
        maybe_ref,
        obj_to_ref,
        ref_to_obj,
    )

__all__ = [
    "asbool",
    "asdate",
    "asint",
    "astimezone",
    "check_callable_args",
    "convert_to_datetime",
    "datetime_ceil",
    "datetime_repr",
    "datetime_to_utc_timestamp",
    "datetime_utc_add",
    "get_callable_name",
    "iscoroutinefunction_partial",
    "localize",
    "maybe_ref",
    "normalize",
    "obj_to_ref",
    "ref_to_obj",
    "timedelta_seconds",
    "timezone_repr",
    "undefined",
    "utc_timestamp_to_datetime",
]


def __getattr__(name: str) -> Any:
    # Import lazily: triggers need only the helpers for times, and importing a trigger should stay cheap.
    if name in __all__:  # a public name that this module lacks is a helper for callables
        from mainspring.core import references

        return getattr(references, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Undefined:
    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "<undefined>"

    def __reduce__(self) -> str:
        return "undefined"


undefined: Final = _Undefined()
"""The default of an argument for which None has a meaning."""

_TRUE = frozenset(["1", "on", "t", "true", "y", "yes"])
_FALSE = frozenset(["0", "f", "false", "n", "no", "off"])


@overload
def asint(text: str | int) -> int: ...
@overload
def asint(text: None) -> None: ...
def asint(text: str | int | None) -> int | None:
    """Read an integer; None stays None."""
    return None if text is None else int(text)


def asbool(obj: object) -> bool:
    """Read a boolean from a text such as `yes`, `off` or `1`; return the truth of any other value."""
    if not isinstance(obj, str):
        return bool(obj)
    word = obj.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(f"{obj!r} is neither yes nor no; write true or false, yes or no, on or off, 1 or 0")


@overload
def asdate(obj: str | date) -> date: ...
@overload
def asdate(obj: None) -> None: ...
def asdate(obj: str | date | None) -> date | None:
    """Read a date from a text such as `2026-03-29`; dates and None stay as they are."""
    return date.fromisoformat(obj) if isinstance(obj, str) else obj


def convert_to_datetime(
    input: date | str | None, tz: tzinfo | str | None, arg_name: str | None = None
) -> datetime | None:
    """Make an aware datetime from a datetime, date or text; read a naive one as wall clock time in `tz`."""
    if input is None:
        return None
    moment = read_datetime(input, arg_name or "input")
    if moment.tzinfo is not None:
        return moment
    if tz is None:
        raise ValueError(f"{arg_name or 'input'} {input!r} has no time zone, and none was given to read it in")
    return localize(moment, astimezone(tz) if isinstance(tz, str) else tz)


def localize(dt: datetime, tzinfo: tzinfo) -> datetime:
    """Make a naive datetime aware; a time in a gap becomes the first time after it, a repeated time its first pass."""
    own = getattr(tzinfo, "localize", None)
    if own is not None:  # pytz, whose datetimes carry another tzinfo
        aware: datetime = own(dt)
        return aware
    return from_us(to_us(dt, zone_of(tzinfo)), tzinfo)


def normalize(dt: datetime) -> datetime:
    """Return the same instant with the local time that its zone really shows."""
    return dt if dt.tzinfo is None else from_us(to_us(dt), dt.tzinfo)


@overload
def datetime_to_utc_timestamp(timeval: datetime) -> float: ...
@overload
def datetime_to_utc_timestamp(timeval: None) -> None: ...
def datetime_to_utc_timestamp(timeval: datetime | None) -> float | None:
    """Return seconds since 1970 of an aware datetime (a naive one counts as UTC); None stays None."""
    if timeval is None:
        return None
    return to_us(timeval if timeval.tzinfo is not None else timeval.replace(tzinfo=UTC)) / 1_000_000


@overload
def utc_timestamp_to_datetime(timestamp: float) -> datetime: ...
@overload
def utc_timestamp_to_datetime(timestamp: None) -> None: ...
def utc_timestamp_to_datetime(timestamp: float | None) -> datetime | None:
    """Return the datetime in UTC of seconds since 1970; None stays None."""
    return None if timestamp is None else EPOCH + timedelta(seconds=timestamp)


def timedelta_seconds(delta: timedelta) -> float:
    """Return the length of a timedelta in seconds."""
    return delta.total_seconds()


def datetime_utc_add(dateval: datetime, tdelta: timedelta) -> datetime:
    """Add real time to a datetime, across changes of its UTC offset."""
    if dateval.tzinfo is None:
        return dateval + tdelta
    return (dateval.astimezone(UTC) + tdelta).astimezone(dateval.tzinfo)


def datetime_ceil(dateval: datetime) -> datetime:
    """Round a datetime up to a whole second."""
    if not dateval.microsecond:
        return dateval
    return datetime_utc_add(dateval, timedelta(microseconds=1_000_000 - dateval.microsecond))


def datetime_repr(dateval: datetime | None) -> str:
    """Show a datetime with the abbreviation of its time zone."""
    return dateval.strftime("%Y-%m-%d %H:%M:%S %Z") if dateval is not None else "None"


def timezone_repr(timezone: tzinfo) -> str:
    """Show a time zone by its name."""
    return timezone.key if isinstance(timezone, ZoneInfo) else repr(timezone)
