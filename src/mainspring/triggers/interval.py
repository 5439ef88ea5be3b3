"""Fire at a fixed interval, in real time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta, tzinfo
from time import time_ns
from typing import Any

from mainspring.core.instants import SECOND
from mainspring.triggers.data import check_jitter, read_instant, read_jitter, read_optional_instant
from mainspring.triggers.parsing import check_order, given_zone, instant_of
from mainspring.triggers.words import span, with_options
from mainspring.triggers.zoned import BoundedTrigger
from mainspring.triggers.zones import MAX_INSTANT, get_localzone, zone_of

__all__ = ["IntervalTrigger"]

_PLAIN_SECONDS = 10**9
"""Accept whole seconds below this without the slower check by a timedelta."""


class IntervalTrigger(BoundedTrigger):
    """A trigger that fires at `start_date` and every interval after it, up to `end_date`.

    The start defaults to one interval from now. Intervals are real time: an hour is 3600 seconds on every day of the
    year. If all parts are zero, the interval is one second.
    """

    __slots__ = ("_interval",)
    alias = "interval"
    _start: int

    def __init__(
        self,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        start_date: date | str | None = None,
        end_date: date | str | None = None,
        timezone: tzinfo | str | None = None,
        jitter: float | None = None,
        *,
        made_at: int | None = None,
    ) -> None:
        total = (weeks * 7 + days) * 86_400 + hours * 3600 + minutes * 60 + seconds
        if type(total) is int and 0 < total < _PLAIN_SECONDS:
            interval = total * SECOND
        else:
            length = timedelta(days, seconds, 0, 0, minutes, hours, weeks)
            interval = (length.days * 86_400 + length.seconds) * SECOND + length.microseconds
            if interval <= 0:
                if interval or weeks or days or hours or minutes or seconds:
                    raise ValueError(f"IntervalTrigger: the interval must be a microsecond at least, not {length}")
                interval = SECOND
        self._interval = interval
        self._zone = zone = given_zone(timezone, start_date, end_date) or zone_of(get_localzone())
        if start_date:
            self._start = instant_of(start_date, zone, "start_date")
        else:
            self._start = (time_ns() // 1000 if made_at is None else made_at) + interval
        self._end = instant_of(end_date, zone, "end_date") if end_date else None
        if start_date:
            check_order("IntervalTrigger", self._start, self._end, zone)
        self.jitter = None if jitter is None else check_jitter(jitter)

    @property
    def interval(self) -> timedelta:
        """The time between two fires."""
        return timedelta(microseconds=self._interval)

    @property
    def interval_length(self) -> float:
        """The time between two fires, in seconds."""
        return self._interval / SECOND

    def next_fire(self, previous: int | None, now: int) -> int | None:
        """Return the fire one interval after `previous`, or the first one of the grid at or after `now`."""
        if previous is not None:
            fire = previous + self._interval
        elif self._start >= now:
            fire = self._start
        else:
            fire = now + (self._start - now) % self._interval
        end = MAX_INSTANT if self._end is None else self._end
        return fire if fire <= end else None

    def first_fire(self, instant: int) -> int | None:
        """Return the first fire of the grid at or after an instant."""
        return self.next_fire(None, instant)

    def overdue(self, first: int, until: int, limit: int) -> tuple[int, list[int]]:
        """Count the fires from `first` up to `until`, and list the latest `limit` of them, by arithmetic."""
        if self._end is not None:
            until = min(until, max(self._end, first))
        if first > until:
            return 0, []
        count = (until - first) // self._interval + 1
        last = first + (count - 1) * self._interval
        listed = min(count, limit)
        return count, [last - step * self._interval for step in range(listed - 1, -1, -1)]

    def _values(self) -> tuple[Any, ...]:
        return self._interval, self._start, self._end, self._zone

    def describe(self) -> str:
        """Say in words when the trigger fires."""
        return with_options(span(self._interval), self._zone, end=self._end, jitter=self.jitter)

    def _state(self) -> dict[str, Any]:
        return {"interval": self._interval, "start_date": self._start, "end_date": self._end, "jitter": self.jitter}

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._interval, self._start = state["interval"], read_instant(state, "start_date")
        if type(self._interval) is not int or self._interval <= 0:
            raise ValueError(f"interval is not a number of microseconds: {self._interval!r}")
        self._end, self.jitter = read_optional_instant(state, "end_date"), read_jitter(state)

    def __str__(self) -> str:
        return f"interval[{self.interval}]"

    def __repr__(self) -> str:
        return self._show([f"interval={self.interval!r}"])
