"""Fire every few years, months, weeks or days, at a fixed time of day."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Any

from mainspring.core.instants import SECOND, from_us
from mainspring.triggers.data import check_jitter, read_jitter
from mainspring.triggers.parsing import given_zone
from mainspring.triggers.words import every, join, ordinal, shown_zone, with_options
from mainspring.triggers.zoned import ZonedTrigger
from mainspring.triggers.zones import DAY, EPOCH_DAY, MAX_INSTANT, date_of, get_localzone, zone_of
from mainspring.util import asdate, timezone_repr

__all__ = ["CalendarIntervalTrigger"]


class CalendarIntervalTrigger(ZonedTrigger):
    """A trigger that fires on `start_date` and every calendar interval after it, always at the same time of day.

    An interval adds years and months first, then weeks and days. Adding months keeps the day of the month and skips
    months that do not have it. The start defaults to today. If a change of the clock skips or repeats the time of day,
    the rule of cron triggers applies.
    """

    __slots__ = ("_end", "_seen", "_start", "_time", "days", "jitter", "months", "weeks", "years")
    alias = "calendarinterval"

    def __init__(
        self,
        *,
        years: int = 0,
        months: int = 0,
        weeks: int = 0,
        days: int = 0,
        hour: int = 0,
        minute: int = 0,
        second: int = 0,
        start_date: date | str | None = None,
        end_date: date | str | None = None,
        timezone: tzinfo | str | None = None,
        jitter: float | None = None,
        made_at: int | None = None,
    ) -> None:
        self.years, self.months, self.weeks, self.days = years, months, weeks, days
        if min(years, months, weeks, days) < 0 or not (years or months or weeks or days):
            raise ValueError(
                "CalendarIntervalTrigger: the interval must be a day at least;"
                f" got years={years}, months={months}, weeks={weeks}, days={days}"
            )
        self._time = time(hour, minute, second)
        self._zone = zone = given_zone(timezone) or zone_of(get_localzone())
        now = datetime.now(zone.tz) if made_at is None else from_us(made_at, zone.tz)
        self._start = _date(start_date) or now.date()
        self._seen = self._start
        self._end = _date(end_date)
        if start_date and self._end and self._end < self._start:
            raise ValueError(f"CalendarIntervalTrigger: end_date {self._end} is before start_date {self._start}")
        self.jitter = check_jitter(jitter)

    @property
    def start_date(self) -> date:
        """The first date to fire on."""
        return self._start

    @property
    def end_date(self) -> date | None:
        """The last date to fire on."""
        return self._end

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """Return the fire time after the previous one, or that of the start date, even if it is past."""
        if previous_fire_time is None:
            return self._shown(self._fire(self._start), self._zone)
        return super().get_next_fire_time(previous_fire_time, now)

    def next_fire(self, previous: int | None, now: int) -> int | None:
        """Return the fire one interval after the date of `previous`, or the first one at or after `now`."""
        if previous is None:
            return self.first_fire(now)
        return self._from(self._step(self._day_of(previous)), previous + 1)

    def first_fire(self, instant: int) -> int | None:
        """Return the first fire at or after an instant."""
        return self._from(self._near(date_of(self._zone.wall(instant) // DAY - 2)), instant)

    def _from(self, day: date | None, instant: int) -> int | None:
        """Return the first fire at or after an instant, searching from a date of the series."""
        while day is not None:
            fire = self._fire(day)
            if fire is None or fire >= instant:
                return fire
            day = self._step(day)
        return None

    def _fire(self, day: date) -> int | None:
        if self._end is not None and day > self._end:
            return None
        fire = self._zone.instant(self._wall(day))
        return fire if fire <= MAX_INSTANT else None

    def _wall(self, day: date) -> int:
        at = self._time
        return (day.toordinal() - EPOCH_DAY) * DAY + ((at.hour * 60 + at.minute) * 60 + at.second) * SECOND

    def _step(self, day: date) -> date | None:
        """Return the next date of the series."""
        year, month = day.year, day.month
        while self.years or self.months:
            carry, month = divmod(month - 1 + self.months, 12)
            year, month = year + self.years + carry, month + 1
            if year > date.max.year:
                return None
            if day.day <= 28 or day.day <= monthrange(year, month)[1]:
                break
        try:
            return date(year, month, day.day) + timedelta(weeks=self.weeks, days=self.days)
        except OverflowError:
            return None

    def _near(self, day: date) -> date:
        """Return a date of the series that is not after `day`, or the first one; use arithmetic where possible."""
        start, months = self._start, self.years * 12 + self.months
        if day <= start:
            return start
        if not months:
            length = self.weeks * 7 + self.days
            return start + timedelta(days=(day - start).days // length * length)
        if not self.weeks and not self.days:
            behind = (day.year - start.year) * 12 + day.month - start.month - 1
            while behind > 0:
                carry, month = divmod(start.month - 1 + behind // months * months, 12)
                if start.day <= monthrange(start.year + carry, month + 1)[1]:
                    return date(start.year + carry, month + 1, start.day)
                behind -= months
            return start
        # No formula covers months together with days, so continue from where the last search ended.
        near = self._seen if self._seen <= day else start
        following = self._step(near)
        while following is not None and following <= day:
            near, following = following, self._step(following)
        self._seen = near
        return near

    def _day_of(self, instant: int) -> date:
        """Return the date of the series that this fire belongs to; a gap at midnight may show the next date."""
        start, _, offset, high = self._zone.segment(instant)
        shown = date_of((instant + offset) // DAY)
        if instant > start or high >= instant + offset - 1:
            return shown
        swallowed = [
            day
            for day in map(date_of, range((high + 1) // DAY, (instant + offset) // DAY + 1))
            if high < self._wall(day) <= instant + offset
        ]
        in_series = [day for day in swallowed if self._near(day) == day]
        return (in_series or swallowed or [shown])[0]

    def _last(self) -> int | None:
        return None if self._end is None else self._zone.instant(self._wall(self._end) // DAY * DAY + DAY) - 1

    def _values(self) -> tuple[Any, ...]:
        return self.years, self.months, self.weeks, self.days, self._time, self._start, self._end, self._zone

    def describe(self) -> str:
        """Say in words when the trigger fires."""
        given = ((self.years, "year"), (self.months, "month"), (self.weeks, "week"), (self.days, "day"))
        units = [(count, unit) for count, unit in given if count]
        text = join([every(*units[0]), *(f"{count} {unit}{'s' if count > 1 else ''}" for count, unit in units[1:])])
        if units == [(self.years, "year")]:
            text += f" on {self._start.day} {self._start:%B}"
        elif units == [(self.months, "month")]:
            text += f" on the {ordinal(self._start.day)}"
        elif units == [(self.weeks, "week")]:
            text += f" on {self._start:%A}"
        text += f" at {self._time:%H:%M}" if not self._time.second else f" at {self._time:%H:%M:%S}"
        text = with_options(f"{text}, {shown_zone(self._zone)}", self._zone, jitter=self.jitter)
        return text if self._end is None else f"{text}, until {self._end}"

    def _state(self) -> dict[str, Any]:
        return {
            "interval": [self.years, self.months, self.weeks, self.days],
            "time": [self._time.hour, self._time.minute, self._time.second],
            "start_date": self._start.isoformat(),
            "end_date": None if self._end is None else self._end.isoformat(),
            "jitter": self.jitter,
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        years, months, weeks, days = state["interval"]
        hour, minute, second = state["time"]
        CalendarIntervalTrigger.__init__(
            self, years=years, months=months, weeks=weeks, days=days, hour=hour, minute=minute, second=second,
            start_date=date.fromisoformat(state["start_date"]), end_date=state.get("end_date"),
            timezone=self._zone.tz, jitter=read_jitter(state),
        )  # fmt: skip

    def _options(self) -> list[str]:
        lengths = {"years": self.years, "months": self.months, "weeks": self.weeks, "days": self.days}
        options = [f"{name}={length}" for name, length in lengths.items() if length]
        return [*options, f"time={self._time.isoformat()!r}"]

    def __str__(self) -> str:
        return f"calendarinterval[{', '.join(self._options())}]"

    def __repr__(self) -> str:
        options = [*self._options(), f"start_date='{self._start}'"]
        if self._end is not None:
            options.append(f"end_date='{self._end}'")
        return f"{type(self).__name__}({', '.join(options)}, timezone={timezone_repr(self.timezone)!r})"


def _date(value: date | str | None) -> date | None:
    if not value:
        return None
    day = asdate(value)
    return day.date() if isinstance(day, datetime) else day
