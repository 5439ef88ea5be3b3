"""Time zones as arithmetic on integers: spans of constant UTC offset, and the wall clock seen through them.

Instants are `int` microseconds since 1970 in UTC; a *wall* is the time on a local clock, counted the same way. A zone
consists of segments within which `wall = instant + offset`. Gaps and overlaps occur only between two segments, so this
works without `fold` and with any `tzinfo`. One rule maps a wall to an instant:

    instant(wall) = the first instant at which the local clock shows `wall` or later

For a wall inside a gap, that is the transition itself. For a wall inside an overlap, it is the first pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final, NamedTuple, overload
from zoneinfo import ZoneInfo

from mainspring.core.instants import EPOCH, SECOND

__all__ = [
    "DAY",
    "EPOCH_DAY",
    "MAX_INSTANT",
    "MIN_INSTANT",
    "Segment",
    "Zone",
    "astimezone",
    "date_of",
    "day_number",
    "get_localzone",
    "zone_of",
]

DAY: Final = 86_400 * SECOND
MIN_INSTANT: Final = (datetime.min.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
MAX_INSTANT: Final = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)

EPOCH_DAY: Final = EPOCH.toordinal()

_BLOCK_US: Final = 370 * DAY
_MARGIN_US: Final = 2 * DAY  # an offset is under a day either way, so a clock is never set back by two days
_LOOK_US: Final = 3 * DAY  # in 150 years of records, no zone has changed its offset and changed it back in less
_BLOCKS_CACHED: Final = 2048


class Segment(NamedTuple):
    """A span `start <= instant < end` of constant offset; `high` is the latest wall shown before it began."""

    start: int
    end: int
    offset: int
    high: int


class Zone:
    """A time zone and its segments, which it finds by probing and keeps. Get a shared one from `zone_of`."""

    __slots__ = ("_blocks", "_recent", "key", "tz")

    def __init__(self, tz: tzinfo) -> None:
        self.tz = tz
        self.key = _key(tz)
        self._blocks: dict[int, tuple[Segment, ...]] = {}
        self._recent = Segment(0, 0, 0, 0)
        if isinstance(tz, timezone):
            # One segment, wide enough for every instant that a datetime can show.
            self._recent = Segment(2 * MIN_INSTANT, 2 * MAX_INSTANT, _microseconds(tz.utcoffset(None)), 2 * MIN_INSTANT)

    def segment(self, instant: int) -> Segment:
        """Return the segment around `instant`; adjacent segments may have the same offset."""
        segment = self._recent
        if segment[0] <= instant < segment[1]:
            return segment
        number = instant // _BLOCK_US
        for segment in self._blocks.get(number) or self._probe(number):
            if instant < segment[1]:
                break
        self._recent = segment
        return segment

    def wall(self, instant: int) -> int:
        """Return the time on the local clock at `instant`."""
        return instant + self.segment(instant)[2]

    def instant(self, wall: int) -> int:
        """Return the first instant at which the local clock shows `wall` or later."""
        segment = self.segment(wall - DAY)
        while wall >= segment[1] + segment[2]:
            segment = self.segment(segment[1])
        return max(segment[0], wall - segment[2])

    def second_pass(self, wall: int) -> int:
        """Return the second instant at which the local clock shows `wall`, or the first if there is only one."""
        first = self.instant(wall)
        segment = self.segment(first)
        while segment[1] <= first + _MARGIN_US:
            segment = self.segment(segment[1])
            if segment[0] + segment[2] <= wall < segment[1] + segment[2] and wall - segment[2] > first:
                return wall - segment[2]
        return first

    def _probe(self, number: int) -> tuple[Segment, ...]:
        """Cut one block of time at its changes of offset, and keep the segments."""
        begin, end = number * _BLOCK_US, (number + 1) * _BLOCK_US
        early = begin - _MARGIN_US
        changes = [(early, self._offset(early)), *self._changes(early, end)]
        ends = [*(start for start, _ in changes[1:]), end]
        high = early + changes[0][1] - 1
        found: list[Segment] = []
        for (start, offset), stop in zip(changes, ends, strict=True):
            if stop > begin:
                if start < begin:
                    start, high = begin, max(high, begin + offset - 1)
                found.append(Segment(start, stop, offset, high))
            high = max(high, stop + offset - 1)
        if len(self._blocks) >= _BLOCKS_CACHED:
            self._blocks.clear()
        segments = self._blocks[number] = tuple(found)
        return segments

    def _changes(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Yield the changes of offset between two instants, to the second; probe every few days to find them."""
        offset = self._offset(low)
        while low < high:
            ahead = min(low + _LOOK_US, high)
            while offset != self._offset(ahead):
                low = self._change(low, ahead, offset)
                offset = self._offset(low)
                if low < high:
                    yield low, offset
            low = ahead

    def _change(self, low: int, high: int, offset: int) -> int:
        """Return the first whole second after `low` whose offset is not `offset`, known to be before or at `high`."""
        before, after = low // SECOND, high // SECOND
        while after - before > 1:
            middle = (before + after) // 2
            if self._offset(middle * SECOND) == offset:
                before = middle
            else:
                after = middle
        return after * SECOND

    def _offset(self, instant: int) -> int:
        # Near the ends of the calendar, no datetime may exist for a local time: use the nearest offset instead.
        instant = min(max(instant, MIN_INSTANT + _MARGIN_US), MAX_INSTANT - _MARGIN_US)
        return _microseconds((EPOCH + timedelta(microseconds=instant)).astimezone(self.tz).utcoffset())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Zone):
            return NotImplemented
        return self is other or (self.key == other.key if self.key is not None else self.tz == other.tz)

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Zone({self.tz!r})"

    def name(self) -> str:
        """Return the name under which the zone can be stored, or raise ValueError if it has none."""
        if self.key is None:
            raise ValueError(
                f"the time zone {self.tz!r} has no name that another process could look up, so it cannot be stored;"
                " give an IANA name such as timezone='Europe/Berlin'"
            )
        return self.key


def _microseconds(delta: timedelta | None) -> int:
    return 0 if delta is None else delta // timedelta(microseconds=1)


def _key(tz: tzinfo) -> str | None:
    if isinstance(tz, ZoneInfo):
        # tzlocal names a zone file "local" if it does not know the name; that means another zone on every machine.
        return None if tz.key == "local" else tz.key
    if isinstance(tz, timezone):
        offset = tz.utcoffset(None)
        return str(timezone(offset)) if offset else "UTC"
    return None


_shared = lru_cache(maxsize=2048)(Zone)
_unhashable: dict[int, Zone] = {}


def zone_of(tz: tzinfo) -> Zone:
    """Return the shared zone of a tzinfo."""
    try:
        return _shared(tz)
    except TypeError:  # dateutil's zones have no hash: find them by id, which stays valid while we hold them
        zone = _unhashable.get(id(tz))
        if zone is None:
            if len(_unhashable) >= 256:
                _unhashable.clear()
            zone = _unhashable[id(tz)] = Zone(tz)
        return zone


def day_number(day: date) -> int:
    """Return the days from 1970 to a date."""
    return day.toordinal() - EPOCH_DAY


def date_of(number: int) -> date:
    """Return the date that is this many days after 1970, or the nearest possible date."""
    return date.fromordinal(min(max(number + EPOCH_DAY, 1), date.max.toordinal()))


def get_localzone() -> tzinfo:
    """Return the machine's time zone."""
    from tzlocal import get_localzone as local

    return local()


@overload
def astimezone(obj: str | tzinfo) -> tzinfo: ...
@overload
def astimezone(obj: None) -> None: ...
@overload
def astimezone(obj: str | tzinfo | None) -> tzinfo | None: ...
def astimezone(obj: str | tzinfo | None) -> tzinfo | None:
    """Return the time zone of a name, or a zone of another library as one of the standard library; None stays None."""
    if obj is None or isinstance(obj, ZoneInfo | timezone):
        return obj
    if isinstance(obj, str):
        return _named(obj)
    if not isinstance(obj, tzinfo):
        raise TypeError(f"a time zone is a tzinfo or a name such as 'Europe/Berlin', not {obj!r}")
    return _plain(obj)


@lru_cache(maxsize=1024)
def _named(name: str) -> tzinfo:
    if name in ("UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        pass
    fixed = _fixed_offset(name)
    if fixed is not None:
        return fixed
    from zoneinfo import available_timezones

    from mainspring.errors import near

    known = available_timezones()
    word = name.lower().replace(" ", "_")
    alike = [key for key in sorted(known) if word in (key.lower(), key.lower().rpartition("/")[2])]
    hint = (
        near(alike[0], alike[:1])
        if alike
        else near(name, known) or "; names are like 'Europe/Berlin', 'UTC' or 'UTC+05:30'"
    )
    raise ValueError(f"no time zone is called {name!r}{hint}")


def _fixed_offset(text: str) -> timezone | None:
    """Read `UTC+05:30`, `+05:30` or `-03:00:00`."""
    sign, _, rest = text.removeprefix("UTC").removeprefix("GMT").partition(":")
    if len(sign) != 3 or sign[0] not in "+-" or not rest:
        return None
    try:
        return datetime.fromisoformat(f"2000-01-01T00:00:00{sign}:{rest}").tzinfo  # type: ignore[return-value]
    except ValueError:
        return None


def _plain(tz: tzinfo) -> tzinfo:
    """Turn a zone of pytz or dateutil into one of the standard library if it has a name or a fixed offset."""
    if tz.tzname(None) == "local":
        raise ValueError(
            "the local time zone has no name: set the machine's time zone properly, or give an IANA name such as"
            " timezone='Europe/Berlin'"
        )
    kind = f"{type(tz).__module__}.{type(tz).__qualname__}"
    name = getattr(tz, "zone", None)  # pytz
    if hasattr(tz, "zone") and not name:
        return timezone(tz.utcoffset(None) or timedelta())
    if kind.startswith("dateutil."):
        if kind.endswith((".tzutc", ".tzoffset")):
            return timezone(tz.utcoffset(None) or timedelta())
        name = str(getattr(tz, "_filename", "")).rpartition("zoneinfo/")[2]
    if isinstance(name, str) and name:
        try:
            return UTC if name == "UTC" else ZoneInfo(name)
        except (LookupError, ValueError, OSError):
            return tz
    return tz
