"""What fires should be, found the slow and obvious way: by looking at every minute through zoneinfo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from hypothesis import settings

from mainspring.triggers.base import BaseTrigger

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

thoroughly = settings(max_examples=2 * settings().max_examples)


def us(text: str, zone: str = "UTC", fold: int = 0) -> int:
    """Read an instant: a wall clock time in a zone."""
    moment = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))


def shown(instant: int | None, zone: str = "UTC") -> str | None:
    """Show an instant as the clocks of a zone do, with its offset."""
    if instant is None:
        return None
    seconds, rest = divmod(instant, SECOND)
    return datetime.fromtimestamp(seconds, ZoneInfo(zone)).replace(microsecond=rest).isoformat(sep=" ")


def walk(trigger: BaseTrigger, begin: int, end: int) -> list[int]:
    """List the fires of a trigger between two instants, one after the other."""
    fires: list[int] = []
    fire = trigger.next_fire(None, begin)
    while fire is not None and fire <= end:
        fires.append(fire)
        fire = trigger.next_fire(fire, fire)
    return fires


def fires_shown(trigger: BaseTrigger, begin: str, end: str, zone: str) -> list[str | None]:
    """List the fires between two wall clock times, as the clocks of the zone show them."""
    return [shown(fire, zone) for fire in walk(trigger, us(begin, zone), us(end, zone))]


Clock = list[tuple[int, int]]


def clock(zone: str, begin: int, end: int) -> Clock:
    """Read a zone's wall clock at every minute between two instants; walls are minutes, counted from 1970 too."""
    tz = ZoneInfo(zone)
    seen: Clock = []
    for minute in range(-(-begin // MINUTE), end // MINUTE + 1):
        offset = datetime.fromtimestamp(minute * 60, tz).utcoffset() or timedelta()
        assert offset.seconds % 60 == 0
        seen.append((minute * MINUTE, minute + offset.days * 1440 + offset.seconds // 60))
    return seen


def scan_real_time(minutes: Clock, matches: Callable[[int], bool]) -> list[int]:
    """List the minutes at which the wall clock matches."""
    return [instant for instant, wall in minutes if matches(wall)]


def scan_wall_clock(minutes: Clock, matches: Callable[[int], bool]) -> list[int]:
    """List, for every matching wall time, the first minute at which the clock shows it or later; each once."""
    fires: list[int] = []
    shown = minutes[0][1] - 1
    for instant, wall in minutes:
        if any(matches(passed) for passed in range(shown + 1, wall + 1)):
            fires.append(instant)
        shown = max(shown, wall)
    return fires


def _offset(tz: ZoneInfo, second: int) -> timedelta | None:
    return datetime.fromtimestamp(second, tz).utcoffset()


def _changes(tz: ZoneInfo, begin: int, end: int) -> Iterator[int]:
    step = 5 * 86_400  # no zone changes twice in five days
    before = _offset(tz, begin)
    for second in range(begin, end, step):
        after = _offset(tz, second + step)
        if after != before:
            low, high = second, second + step
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if _offset(tz, middle) == before else (low, middle)
            yield high * SECOND
        before = after


@cache
def transitions() -> list[tuple[str, int]]:
    """List every change of offset of 2020-2040: one zone for each distinct table of them, by name."""
    begin, end = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (2020, 2041))
    tables: dict[tuple[tuple[int, timedelta | None], ...], str] = {}
    for name in sorted(available_timezones()):
        tz = ZoneInfo(name)
        changes = tuple((change, _offset(tz, change // SECOND)) for change in _changes(tz, begin, end))
        tables.setdefault(changes, name)
    return [(name, change) for changes, name in tables.items() for change, _ in changes]
