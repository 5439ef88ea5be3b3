"""Fire once, at a given time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, tzinfo
from typing import Any

from mainspring.core.instants import from_us, to_us
from mainspring.triggers.data import read_instant
from mainspring.triggers.parsing import given_zone, read_datetime
from mainspring.triggers.words import shown_moment, shown_zone
from mainspring.triggers.zoned import ZonedTrigger
from mainspring.triggers.zones import astimezone, get_localzone, zone_of
from mainspring.util import datetime_repr

__all__ = ["DateTrigger"]


class DateTrigger(ZonedTrigger):
    """A trigger that fires once, at `run_date`, or now without one."""

    __slots__ = ("_run",)
    alias = "date"

    def __init__(
        self,
        run_date: date | str | None = None,
        timezone: tzinfo | str | None = None,
        *,
        made_at: int | None = None,
    ) -> None:
        zone = given_zone(timezone) or zone_of(get_localzone())
        if run_date is None:
            self._run, self._zone = to_us(datetime.now(zone.tz)) if made_at is None else made_at, zone
            return
        moment = read_datetime(run_date, "run_date")
        self._run = to_us(moment, zone)
        self._zone = zone if moment.tzinfo is None else zone_of(astimezone(moment.tzinfo))

    @property
    def run_date(self) -> datetime:
        """When it fires."""
        return from_us(self._run, self._zone.tz)

    def next_fire(self, previous: int | None, now: int) -> int | None:
        """Return the only fire, even if it is past, unless it has fired before."""
        return self._run if previous is None else None

    def first_fire(self, instant: int) -> int | None:
        """Return the only fire if it is at or after an instant."""
        return self._run if self._run >= instant else None

    def overdue(self, first: int, until: int, limit: int) -> tuple[int, list[int]]:
        """Return the only fire if it is due."""
        return (1, [first][:limit]) if first <= until else (0, [])

    def _values(self) -> tuple[Any, ...]:
        return self._run, self._zone

    def describe(self) -> str:
        """Say in words when the trigger fires."""
        return f"once at {shown_moment(self._run, self._zone)}, {shown_zone(self._zone)}"

    def _state(self) -> dict[str, Any]:
        return {"run_date": self._run}

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._run = read_instant(state, "run_date")

    def __str__(self) -> str:
        return f"date[{datetime_repr(self.run_date)}]"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} (run_date='{datetime_repr(self.run_date)}')>"
