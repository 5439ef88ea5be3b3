"""A compiled cron schedule: it finds and counts the matching wall clock seconds by arithmetic on bit masks.

The matching days are one mask of up to 31 bits for each month of each kind of year. There are 21 kinds: they differ in
the weekday of 1 January, the year's length, and, for ISO weeks, whether the year before was longer. So the whole
calendar of a schedule is small. It is filled in as needed, and all triggers with the same date fields share it.
"""

from __future__ import annotations

from datetime import date
from functools import lru_cache
from typing import Final

from mainspring.triggers.cron.fields import FIELD_NAMES, CronField, parse_field
from mainspring.triggers.zones import EPOCH_DAY

__all__ = ["Calendar", "CronSchedule", "compile_schedule"]

_LAST_DAY: Final = date.max.toordinal() - EPOCH_DAY
_FIRST_YEAR: Final = 1970
_ALL_YEARS: Final = (1 << 10_000 - _FIRST_YEAR) - 1
_NO_DAYS: Final = (0,) * 13
_DEFAULTS: Final = dict(zip(FIELD_NAMES, ("*", "1", "1", "*", "*", "0", "0", "0"), strict=True))
_WEEKLY: Final = tuple(sum(1 << day for day in range(first, 32, 7)) for first in range(1, 8))
"""For each day 1..7 of a month, the mask of the days on the same weekday."""


def _leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


# The calendar repeats every 400 years, weekdays included.
_KIND: Final = tuple(
    date(year, 1, 1).weekday() + (7 if _leap(year) else 14 if _leap(year - 1) else 0) for year in range(2000, 2400)
)
_LENGTHS: Final = tuple(
    (0, 31, 29 if 7 <= kind < 14 else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31) for kind in range(21)
)


class Calendar:
    """The days that match the date fields of a schedule."""

    __slots__ = ("_either", "_fields", "_kinds", "_years", "_years_given")

    def __init__(self, texts: tuple[str, ...], either_day: bool) -> None:
        fields = tuple(map(parse_field, FIELD_NAMES, texts))
        self._fields = fields
        self._either = either_day
        self._years_given = _ALL_YEARS if fields[0].text == "*" else fields[0].mask >> _FIRST_YEAR
        self._kinds: dict[int, tuple[int, ...]] = {}
        self._years: int | None = None

    def days(self, year: int) -> tuple[int, ...]:
        """Return the matching days of each month 1..12 of a year as bits; item 0 has the months with any such day."""
        if self._years_given is not _ALL_YEARS and not self._years_given >> (year - _FIRST_YEAR) & 1:
            return _NO_DAYS
        kind = _KIND[year % 400]
        return self._kinds.get(kind) or self._fill(kind)

    def later(self, year: int, month: int) -> int | None:
        """Return the first matching day after a month, in days since 1970, or None."""
        days = self.days(year)
        ahead = days[0] >> month + 1
        if ahead:
            month += 1 + _lowest(ahead)
        else:
            ahead = self.years() >> (year + 1 - _FIRST_YEAR)
            if not ahead:
                return None
            year += 1 + _lowest(ahead)
            days = self.days(year)
            month = _lowest(days[0])
        return date(year, month, _lowest(days[month])).toordinal() - EPOCH_DAY

    def years(self) -> int:
        """Return the years in which any day matches, as bits from 1970; 0 for 30 February."""
        if self._years is None:
            alive = {kind for kind in set(_KIND) if (self._kinds.get(kind) or self._fill(kind))[0]}
            cycle = sum(1 << place for place in range(400) if _KIND[(_FIRST_YEAR + place) % 400] in alive)
            years = 0
            for start in range(0, 10_000 - _FIRST_YEAR, 400):
                years |= cycle << start
            self._years = years & self._years_given
        return self._years

    def count(self, low: int, high: int) -> int:
        """Count the matching days of `low <= day < high`, days counted from 1970."""
        first, last = date.fromordinal(low + EPOCH_DAY), date.fromordinal(high - 1 + EPOCH_DAY)
        total = self._before(last, 1) - self._before(first, 0)
        for year in range(first.year, last.year):
            total += sum(map(int.bit_count, self.days(year)[1:]))
        return total

    def _before(self, day: date, including: int) -> int:
        """Count the matching days of a year before a day, or up to and `including` it."""
        days = self.days(day.year)
        here = days[day.month] & ((1 << day.day + including) - 1)
        return sum(map(int.bit_count, days[1 : day.month])) + here.bit_count()

    def _fill(self, kind: int) -> tuple[int, ...]:
        months = self._fields[1].mask
        masks, start = [0], 0
        for month, size in enumerate(_LENGTHS[kind][1:], 1):
            masks.append(self._month(kind, (kind + start) % 7, start, size) if months >> month & 1 else 0)
            start += size
        masks[0] = sum(1 << month for month in range(1, 13) if masks[month])
        filled = self._kinds[kind] = tuple(masks)
        return filled

    def _month(self, kind: int, first: int, start: int, size: int) -> int:
        """Return the matching days of a month that begins on weekday `first`, `start` days into its year."""
        _, _, day, week, weekday = self._fields
        mask = day.mask
        if day.last_day:
            mask |= 1 << size
        for which, target in day.positions:
            on = _WEEKLY[(target - first) % 7] & (2 << size) - 1
            if which > 0:
                mask |= on & (0b11111110 << 7 * (which - 1))
            else:
                mask |= 1 << on.bit_length() - 1
        if weekday.mask != 0b1111111 or self._either:
            by_weekday = 0
            for target in range(7):
                if weekday.mask >> target & 1:
                    by_weekday |= _WEEKLY[(target - first) % 7]
            mask = mask | by_weekday if self._either else mask & by_weekday
        mask &= (2 << size) - 2
        if week.text != "*":
            for number in range(1, size + 1):
                if not week.mask >> _iso_week(kind, start + number - 1) & 1:
                    mask &= ~(1 << number)
        return mask


def _iso_week(kind: int, day: int) -> int:
    """Return the ISO week of the day-th day (from 0) of a kind of year."""
    weekday, length = kind % 7, 366 if 7 <= kind < 14 else 365
    after = (weekday + length) % 7
    if after <= 3 and day >= length - after:
        return 1
    week = (day + weekday) // 7 + (weekday <= 3)
    if week:
        return week
    return 53 if weekday == 4 or (weekday == 5 and kind >= 14) else 52


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


class CronSchedule:
    """The wall clock seconds that match all fields of a cron expression."""

    __slots__ = (
        "_first",
        "_hours",
        "_minutes",
        "_month",
        "_per_day",
        "_seconds",
        "calendar",
        "either_day",
        "fields",
        "real_time",
    )

    def __init__(self, fields: tuple[CronField, ...], calendar: Calendar, either_day: bool) -> None:
        self.fields = fields
        self.calendar = calendar
        self.either_day = either_day
        self._hours, self._minutes, self._seconds = (field.mask for field in fields[5:])
        self._month = (0, 0, 0, 1970, 1)  # the month of the last lookup: its first day, the day after it, its mask
        self.real_time = fields[5].text.startswith("*")
        self._first = (_lowest(self._hours) * 60 + _lowest(self._minutes)) * 60 + _lowest(self._seconds)
        self._per_day = self._hours.bit_count() * self._minutes.bit_count() * self._seconds.bit_count()

    @property
    def given(self) -> tuple[str | None, ...]:
        """The texts of the fields that were given, None for the others."""
        return tuple(None if field.is_default else field.text for field in self.fields)

    def next_wall(self, second: int) -> int | None:
        """Return the first matching wall second at or after `second`, both counted from 1970, or None."""
        day, time = divmod(second, 86_400)
        first, end, days, year, month = self._month
        if not first <= day < end:
            if day < 0:
                day = time = 0
            elif day > _LAST_DAY:
                return None
            first, end, days, year, month = self._month = self._month_of(day)
        ahead = days >> day - first
        if ahead & 1:
            found = self._next_time(time)
            if found >= 0:
                return day * 86_400 + found
            ahead -= 1
        if ahead:
            return (day + (ahead & -ahead).bit_length() - 1) * 86_400 + self._first
        later = self.calendar.later(year, month)
        return None if later is None else later * 86_400 + self._first

    def _month_of(self, day: int) -> tuple[int, int, int, int, int]:
        """Return the month of a day: its first day, the one after its last, its matching days from bit 0, its date."""
        today = date.fromordinal(day + EPOCH_DAY)
        year, month, first = today.year, today.month, day - today.day + 1
        end = first + _LENGTHS[_KIND[year % 400]][month]
        return first, end, self.calendar.days(year)[month] >> 1, year, month

    def _next_time(self, time: int) -> int:
        """Return the first matching second of the day at or after `time`, or -1."""
        minute, second = divmod(time, 60)
        hour, minute = divmod(minute, 60)
        if self._hours >> hour & 1:
            if self._minutes >> minute & 1:
                ahead = self._seconds >> second
                if ahead:
                    return time + (ahead & -ahead).bit_length() - 1
            ahead = self._minutes >> minute + 1
            if ahead:
                minute += (ahead & -ahead).bit_length()
                return (hour * 60 + minute) * 60 + self._first % 60
        ahead = self._hours >> hour + 1
        if ahead:
            return (hour + (ahead & -ahead).bit_length()) * 3600 + self._first % 3600
        return -1

    def count(self, low: int, high: int) -> int:
        """Count the matching wall seconds of `low <= second < high`."""
        low, high = max(low, 0), min(high, (_LAST_DAY + 1) * 86_400)
        if low >= high:
            return 0
        (first, early), (last, late) = divmod(low, 86_400), divmod(high, 86_400)
        total = self._per_day * self.calendar.count(first, last) if first < last else 0
        if early and self._matches(first):
            total -= self._before(early)
        if late and self._matches(last):
            total += self._before(late)
        return total

    def _matches(self, day: int) -> int:
        today = date.fromordinal(day + EPOCH_DAY)
        return self.calendar.days(today.year)[today.month] >> today.day & 1

    def _before(self, time: int) -> int:
        """Count the matching seconds of a day before `time`."""
        minute, second = divmod(time, 60)
        hour, minute = divmod(minute, 60)
        total = (self._hours & (1 << hour) - 1).bit_count() * self._minutes.bit_count() * self._seconds.bit_count()
        if self._hours >> hour & 1:
            total += (self._minutes & (1 << minute) - 1).bit_count() * self._seconds.bit_count()
            if self._minutes >> minute & 1:
                total += (self._seconds & (1 << second) - 1).bit_count()
        return total


_calendar = lru_cache(maxsize=1024)(Calendar)


@lru_cache(maxsize=4096)
def compile_schedule(given: tuple[str | None, ...], either_day: bool = False) -> CronSchedule:
    """Compile the texts of the eight fields, None for a field that is not given; equal texts share one schedule.

    A missing field becomes `*`, or its lowest value if it is less significant than all given fields. With `either_day`,
    `day` or `day_of_week` is enough if both are restricted; a field that begins with `*` is not restricted.
    """
    last = max((place for place, text in enumerate(given) if text is not None), default=len(given))
    fields = []
    for place, (name, text) in enumerate(zip(FIELD_NAMES, given, strict=True)):
        if text is None:
            fields.append(parse_field(name, _DEFAULTS[name] if place > last else "*", is_default=True))
        else:
            fields.append(parse_field(name, text))
    texts = tuple(field.text for field in fields[:5])
    either_day = either_day and not texts[2].startswith("*") and not texts[4].startswith("*")
    return CronSchedule(tuple(fields), _calendar(texts, either_day), either_day)
