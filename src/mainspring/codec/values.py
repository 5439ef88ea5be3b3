"""Extension codes and bodies for the values that MessagePack has no type for.

A body is either plain bytes (an atom) or one packed array (a compound), which is one level of nesting.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from struct import Struct
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from mainspring.codec.errors import FrameError, Reason
from mainspring.core.waiting.placeholders import Placeholder

__all__ = [
    "ATOMS",
    "COMPOUNDS",
    "MAX_DEPTH",
    "MAX_NESTED_BYTES",
    "MAX_VALUES",
    "OTHER_BYTES",
    "READERS",
    "Code",
    "UnsupportedValue",
    "begins_array",
]

MAX_DEPTH: Final = 64
"""The most levels of nested containers."""

MAX_VALUES: Final = 1_000_000
"""The most values, keys and containers in one payload: an empty dict takes one byte there, and 72 in memory."""

MAX_NESTED_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of all tuples, sets, mappings and objects around a value together: the parser copies each."""


class Code:
    """The extension codes. Stores keep them, so a code never changes its meaning."""

    TUPLE: Final = 1
    SET: Final = 2
    FROZENSET: Final = 3
    DICT: Final = 4
    OBJECT: Final = 5
    ORDERED_DICT: Final = 6
    DEFAULT_DICT: Final = 7
    DEQUE: Final = 8
    CUSTOM: Final = 9
    ENUM: Final = 16
    INT: Final = 17
    STR: Final = 18
    DATETIME: Final = 19
    DATE: Final = 20
    TIME: Final = 21
    TIMEDELTA: Final = 22
    UUID: Final = 23
    DECIMAL: Final = 24
    PATH: Final = 25
    PLACEHOLDER: Final = 26
    PICKLE: Final = 32


COMPOUNDS: Final = frozenset(
    [
        *(Code.TUPLE, Code.SET, Code.FROZENSET, Code.DICT, Code.OBJECT),
        *(Code.ORDERED_DICT, Code.DEFAULT_DICT, Code.DEQUE, Code.CUSTOM),
    ]
)

OTHER_BYTES: Final = bytes(sorted({*range(256)} - {*range(0x80, 0xA0), *range(0xDC, 0xE0)}))
"""The bytes that start neither an array nor a map in MessagePack."""

_SPAN: Final = Struct(">iii")
_MOMENT: Final = re.compile(r"([^~@=]*)(~?)(?:([@=])(.*))?", re.DOTALL)


class UnsupportedValue(Exception):
    """A value cannot be stored; the message continues the path to the value."""


def begins_array(body: bytes) -> bool:
    """Return True if a body starts as a packed array does."""
    return body[:1] >= b"\x90" and (body[0] <= 0x9F or 0xDC <= body[0] <= 0xDD)


# A moment is ISO 8601 text; "~" marks the second pass of a wall time; "@" comes before a zone's key, "=" before the
# name of a fixed offset.


def _write_moment(value: datetime | time) -> bytes:
    tz = value.tzinfo
    fold = "~" if value.fold else ""
    if tz is None or tz is UTC:
        return f"{value.isoformat()}{fold}".encode()
    if type(tz) is timezone:
        _, *name = tz.__getinitargs__()  # type: ignore[attr-defined]
        return f"{value.isoformat()}{fold}{'='.join(['', *name])}".encode("utf-8", "surrogatepass")
    # tzlocal names a zone file "local" if it does not know the name; that means another zone on every machine.
    if type(tz) is ZoneInfo and tz.key and tz.key != "local":
        return f"{value.replace(tzinfo=None).isoformat()}{fold}@{tz.key}".encode("utf-8", "surrogatepass")
    raise UnsupportedValue(
        f"has the time zone {tz!r}, which has no name that another process could look up;"
        " use zoneinfo.ZoneInfo, datetime.timezone or UTC"
    )


def _read_moment(kind: Callable[[str], Any], body: bytes) -> Any:
    if not (b"~" in body or b"@" in body or b"=" in body):
        return kind(body.decode())
    parts = _MOMENT.fullmatch(body.decode("utf-8", "surrogatepass"))
    if parts is None:
        raise ValueError("not a date and time")
    text, fold, mark, name = parts.groups()
    value = kind(text)
    if fold:
        value = value.replace(fold=1)
    if mark is None:
        return value
    return value.replace(tzinfo=_zone(name) if mark == "@" else timezone(value.utcoffset(), name))


def _zone(key: str) -> ZoneInfo:
    try:
        return ZoneInfo(key)
    except (LookupError, OSError, ValueError):
        raise FrameError(
            Reason.MISSING_CODE, f"the time zone {key[:80]!r} is not known here; is the tzdata package up to date?"
        ) from None


_PATHS: Final[dict[str, type[PurePath]]] = {"": Path, "posix": PurePosixPath, "windows": PureWindowsPath}
"""The types of restored paths: a path of the reader's system, or a pure one."""


def _write_path(kind: str) -> Callable[[PurePath], bytes]:
    return lambda value: f"{kind}:{value}".encode("utf-8", "surrogatepass")


def _read_path(body: bytes) -> PurePath:
    kind, _, text = body.decode("utf-8", "surrogatepass").partition(":")
    return _PATHS[kind](text)


def _read_placeholder(body: bytes) -> Placeholder:
    kind, _, run_id = body.decode("utf-8", "surrogatepass").partition(":")
    return Placeholder(run_id, kind)


Writer = Callable[[Any], bytes]
Reader = Callable[[bytes], Any]

ATOMS: Final[dict[type, tuple[int, Writer]]] = {
    int: (Code.INT, lambda value: value.to_bytes(value.bit_length() // 8 + 1, signed=True)),
    str: (Code.STR, lambda value: value.encode("utf-8", "surrogatepass")),
    datetime: (Code.DATETIME, _write_moment),
    date: (Code.DATE, lambda value: value.isoformat().encode()),
    time: (Code.TIME, _write_moment),
    timedelta: (Code.TIMEDELTA, lambda value: _SPAN.pack(value.days, value.seconds, value.microseconds)),
    UUID: (Code.UUID, lambda value: value.bytes),
    Decimal: (Code.DECIMAL, lambda value: str(value).encode()),
    PosixPath: (Code.PATH, _write_path("")),
    WindowsPath: (Code.PATH, _write_path("")),
    PurePosixPath: (Code.PATH, _write_path("posix")),
    PureWindowsPath: (Code.PATH, _write_path("windows")),
    Placeholder: (Code.PLACEHOLDER, lambda value: f"{value.kind}:{value.id}".encode("utf-8", "surrogatepass")),
}

READERS: Final[dict[int, Reader]] = {
    Code.INT: lambda body: int.from_bytes(body, signed=True),
    Code.STR: lambda body: body.decode("utf-8", "surrogatepass"),
    Code.DATETIME: lambda body: _read_moment(datetime.fromisoformat, body),
    Code.DATE: lambda body: date.fromisoformat(body.decode()),
    Code.TIME: lambda body: _read_moment(time.fromisoformat, body),
    Code.TIMEDELTA: lambda body: timedelta(*_SPAN.unpack(body)),
    Code.UUID: lambda body: UUID(bytes=body),
    Code.DECIMAL: lambda body: Decimal(body.decode()),
    Code.PATH: _read_path,
    Code.PLACEHOLDER: _read_placeholder,
}
