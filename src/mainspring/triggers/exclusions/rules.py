"""Exclusions as a value: whether an instant is excluded, until when, and when the next exclusion begins.

All kinds but `spans` are times of the local clock: an instant is excluded if the clock then shows an excluded time. So
an hour that the clock shows twice is excluded twice, and an hour that a change of the clock skips has no effect.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import chain
from typing import Any, Final, Self

from mainspring.core.instants import SECOND, to_us
from mainspring.triggers.words import wall_text
from mainspring.triggers.zones import DAY, MAX_INSTANT, MIN_INSTANT, Zone, date_of, day_number

__all__ = ["MOST_EXCLUSIONS", "Exclusions", "Stretch", "wall_of"]

MOST_EXCLUSIONS: Final = 10_000
"""The most dates, spans and windows that one job may exclude."""
WEEK_SECONDS: Final = 7 * 86_400
_WEEK: Final = WEEK_SECONDS * SECOND
_MONDAY: Final = 3 * DAY  # 1 January 1970 was a Thursday
_MOST_STEPS: Final = 10_000
"""The most adjacent exclusions that one search skips."""
_LEAP_CYCLE: Final = 9
"""Any stretch of this many years has a 29 February."""

Stretch = tuple[int, int]
"""The beginning and the exclusive end of a period."""


class Exclusions:
    """Excluded times in five kinds, each sorted and without overlaps.

    `weekly`: stretches of seconds since Monday 00:00. `yearly`: month and day. `days`: stretches of days since 1970.
    `walls`: stretches of microseconds by the local clock. `spans`: stretches of instants.
    """

    __slots__ = ("_by_wall", "_week", "days", "spans", "walls", "weekly", "yearly")

    def __init__(
        self,
        weekly: Iterable[Stretch] = (),
        yearly: Iterable[tuple[int, int]] = (),
        days: Iterable[Stretch] = (),
        walls: Iterable[Stretch] = (),
        spans: Iterable[Stretch] = (),
    ) -> None:
        self.weekly = _merged(_within_week(weekly))
        self.yearly = tuple(sorted(set(yearly)))
        self.days, self.walls, self.spans = _merged(days), _merged(walls), _merged(spans)
        number = sum(map(len, (self.weekly, self.yearly, self.days, self.walls, self.spans)))
        if number > MOST_EXCLUSIONS:
            raise ValueError(f"exclude holds {number:,} dates and times; at most {MOST_EXCLUSIONS:,} are kept")
        if self.weekly == ((0, WEEK_SECONDS),):
            raise ValueError("exclude leaves no time of the week: every weekday is excluded")
        self._week = [(start * SECOND, end * SECOND) for start, end in self.weekly]
        self._by_wall = _merged([*((first * DAY, after * DAY) for first, after in self.days), *self.walls])

    def __bool__(self) -> bool:
        return bool(self.weekly or self.yearly or self._by_wall or self.spans)

    @classmethod
    def together(cls, found: Iterable[Exclusions]) -> Self:
        """Return the union of several exclusions."""
        return cls(*map(chain.from_iterable, zip(*(each.parts() for each in found), strict=True)))

    def parts(self) -> tuple[Sequence[tuple[int, int]], ...]:
        """Return the five kinds."""
        return self.weekly, self.yearly, self.days, self.walls, self.spans

    # -- instants ----------------------------------------------------------------------------------------------

    def free_from(self, instant: int, zone: Zone) -> int | None:
        """Return the first instant from this one on that is not excluded; None if the search finds none."""
        for _ in range(_MOST_STEPS):
            end = self._until(instant, zone)
            if end is None:
                return instant
            if end > MAX_INSTANT:
                return None
            instant = end
        return None

    def blocked_from(self, instant: int, zone: Zone) -> int:
        """Return the end of the free time that begins at a free instant: the next exclusion, or a change of the offset.

        After a change of the offset, time may still be free, so the caller checks again from there.
        """
        _, end, offset, _ = zone.segment(instant)
        wall = instant + offset
        starts = [end]
        if self._week:
            place = (wall + _MONDAY) % _WEEK
            starts.append(instant + min((start - place) % _WEEK or _WEEK for start, _ in self._week))
        if self.yearly:
            starts.append(self._next_yearly(wall // DAY) * DAY - offset)
        for stretches, at, shift in ((self._by_wall, wall, offset), (self.spans, instant, 0)):
            place = bisect_right(stretches, (at, MAX_INSTANT))
            if place < len(stretches):
                starts.append(stretches[place][0] - shift)
        return min(starts)

    def _until(self, instant: int, zone: Zone) -> int | None:
        """Return when the exclusion around an instant ends, or when the offset changes before; None outside of any."""
        _, end, offset, _ = zone.segment(instant)
        wall_end = self.wall_until(instant + offset)
        span_end = _end_of(self.spans, instant)
        by_wall = None if wall_end is None else min(wall_end - offset, end)
        if by_wall is None or span_end is None:
            return span_end if by_wall is None else by_wall
        return max(by_wall, span_end)

    def wall_until(self, wall: int) -> int | None:
        """Return the local time at which the exclusion around a local time ends; None outside of any."""
        found = _end_of(self._by_wall, wall) or wall
        if self._week:
            place = (wall + _MONDAY) % _WEEK
            end = _end_of(self._week, place)
            found = max(found, wall if end is None else wall + end - place)
        if self.yearly:
            day = wall // DAY
            shown = date_of(day)
            if (shown.month, shown.day) in self.yearly:
                found = max(found, (day + 1) * DAY)
        return None if found == wall else found

    def _next_yearly(self, day: int) -> int:
        """Return the next day after this one that is excluded every year."""
        year = date_of(day).year
        for number in range(year, min(year + _LEAP_CYCLE, date.max.year + 1)):
            for month, of_month in self.yearly:
                try:
                    found = day_number(date(number, month, of_month))
                except ValueError:  # 29 February
                    continue
                if found > day:
                    return found
        return MAX_INSTANT // DAY

    def last_date(self) -> date | None:
        """Return the last of the dates that do not recur, if there are any."""
        ends = [(after - 1) for _, after in self.days] + [(end - 1) // DAY for _, end in (*self.walls, *self.spans)]
        return date_of(max(ends)) if ends else None

    # -- data --------------------------------------------------------------------------------------------------

    def to_data(self) -> dict[str, Any]:
        """Return the exclusions as plain data."""
        data = {
            "weekly": [list(stretch) for stretch in self.weekly],
            "yearly": [f"{month:02}-{day:02}" for month, day in self.yearly],
            "days": [[date_of(first).isoformat(), date_of(after - 1).isoformat()] for first, after in self.days],
            "walls": [[wall_text(start), wall_text(end)] for start, end in self.walls],
            "spans": [list(stretch) for stretch in self.spans],
        }
        return {kind: items for kind, items in data.items() if items}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Make the exclusions from their plain data; raise ValueError if they are damaged."""
        for stretch in (*data.get("weekly", ()), *data.get("spans", ())):
            if len(stretch) != 2 or not all(
                type(each) is int and MIN_INSTANT <= each <= MAX_INSTANT for each in stretch
            ):
                raise ValueError(f"these are not exclusions: {stretch!r}")
        return cls(
            [(start, end) for start, end in data.get("weekly", ())],
            [_month_day(text) for text in data.get("yearly", ())],
            [
                (day_number(date.fromisoformat(a)), day_number(date.fromisoformat(b)) + 1)
                for a, b in data.get("days", ())
            ],
            [
                (wall_of(datetime.fromisoformat(a)), wall_of(datetime.fromisoformat(b)))
                for a, b in data.get("walls", ())
            ],
            [(start, end) for start, end in data.get("spans", ())],
        )

    def __eq__(self, other: object) -> bool:
        return self.parts() == other.parts() if isinstance(other, Exclusions) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.parts())

    def __reduce__(self) -> Any:
        return Exclusions, self.parts()

    def describe(self) -> str:
        """Describe the exclusions in words."""
        from mainspring.triggers.exclusions.words import describe

        return describe(self)

    def texts(self) -> list[str]:
        """Return the exclusions as texts that `exclude=` reads back."""
        from mainspring.triggers.exclusions.words import texts

        return texts(self)

    def __repr__(self) -> str:
        return f"<Exclusions: {self.describe() or 'none'}>"


def _merged(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """Sort stretches, and join those that overlap or touch."""
    found: list[Stretch] = []
    for start, end in sorted(stretches):
        if end <= start:
            raise ValueError("an exclusion ends before it begins")
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return tuple(found)


def _within_week(stretches: Iterable[Stretch]) -> Iterable[Stretch]:
    """Split stretches that continue into the next week."""
    for start, end in stretches:
        yield start, min(end, WEEK_SECONDS)
        if end > WEEK_SECONDS:
            yield 0, end - WEEK_SECONDS


def _end_of(stretches: Sequence[Stretch], at: int) -> int | None:
    """Return the end of the stretch that contains a moment, if any."""
    place = bisect_right(stretches, (at, 2 * MAX_INSTANT)) - 1
    return stretches[place][1] if place >= 0 and at < stretches[place][1] else None


def wall_of(moment: datetime) -> int:
    """Return a moment of the local clock in microseconds."""
    return to_us(moment.replace(tzinfo=UTC))


def _month_day(text: str) -> tuple[int, int]:
    found = date.fromisoformat(f"2000-{text}")  # a leap year
    return found.month, found.day
