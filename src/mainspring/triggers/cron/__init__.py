"""Fire when the calendar and the clock match an expression, as cron does."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, tzinfo
from typing import Any, ClassVar, Self

from mainspring.core.instants import to_us
from mainspring.triggers.cron.crontab import crontab_fields
from mainspring.triggers.cron.fields import FIELD_NAMES, CronField, CronFieldError
from mainspring.triggers.cron.schedule import compile_schedule
from mainspring.triggers.cron.search import count_fires, latest_fires, next_instant
from mainspring.triggers.cron.words import describe_schedule
from mainspring.triggers.data import check_jitter, read_jitter, read_optional_instant
from mainspring.triggers.parsing import check_order, given_zone, instant_of
from mainspring.triggers.words import shown_zone, with_options
from mainspring.triggers.zoned import BoundedTrigger
from mainspring.triggers.zones import get_localzone, zone_of

__all__ = ["CronField", "CronFieldError", "CronTrigger"]


class CronTrigger(BoundedTrigger):
    """A trigger that fires whenever the local time matches every field, from `start_date` to `end_date` inclusive.

    If you leave out a field, it matches always; if it is less significant than all given fields, it takes its lowest
    value instead. Weekday numbers begin at Monday = 0 (`from_crontab` numbers them as crontab does). With `either_day`,
    and both `day` and `day_of_week` restricted, a day needs to match only one of them.
    """

    __slots__ = ("_schedule",)
    alias = "cron"
    FIELD_NAMES: ClassVar[tuple[str, ...]] = FIELD_NAMES

    def __init__(
        self,
        year: int | str | None = None,
        month: int | str | None = None,
        day: int | str | None = None,
        week: int | str | None = None,
        day_of_week: int | str | None = None,
        hour: int | str | None = None,
        minute: int | str | None = None,
        second: int | str | None = None,
        start_date: date | str | None = None,
        end_date: date | str | None = None,
        timezone: tzinfo | str | None = None,
        jitter: float | None = None,
        *,
        either_day: bool = False,
    ) -> None:
        values = (year, month, day, week, day_of_week, hour, minute, second)
        self._schedule = compile_schedule(tuple(None if v is None else str(v) for v in values), bool(either_day))
        self._zone = zone = given_zone(timezone, start_date, end_date) or zone_of(get_localzone())
        self._start = instant_of(start_date, zone, "start_date") if start_date else None
        self._end = instant_of(end_date, zone, "end_date") if end_date else None
        check_order("CronTrigger", self._start, self._end, zone)
        self.jitter = check_jitter(jitter)

    @classmethod
    def from_crontab(cls, expr: str, timezone: tzinfo | str | None = None) -> Self:
        """Make a trigger from a crontab(5) time: five fields, or a word such as `@daily`; 0 and 7 are Sunday."""
        fields, either_day = crontab_fields(expr)
        options: dict[str, Any] = {**fields, "timezone": timezone}
        if either_day:
            options["either_day"] = True
        return cls(**options)

    @property
    def fields(self) -> list[CronField]:
        """The eight fields, from year to second: `name`, `str(field)`, `is_default`."""
        return list(self._schedule.fields)

    @property
    def either_day(self) -> bool:
        """Whether a day matches by `day` or `day_of_week` alone, as in a crontab."""
        return self._schedule.either_day

    @property
    def impossible(self) -> bool:
        """Whether no date of any year can match, such as the 30th of February."""
        return not self._schedule.calendar.years()

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """Return the fire time after the previous one, or the first one as of `now`, in the trigger's time zone.

        If `now` is before the previous fire time, because a clock was set back, the search begins at `now`.
        """
        zone = self._zone
        if previous_fire_time is None:
            return self._shown(self._nominal(None, to_us(now, zone)), zone)
        previous = moment = to_us(previous_fire_time, zone)
        if now.tzinfo is not previous_fire_time.tzinfo or now < previous_fire_time:  # else the instant does not matter
            moment = to_us(now, zone)
        return self._shown(self._nominal(previous if moment >= previous else None, moment), zone)

    def next_fire(self, previous: int | None, now: int) -> int | None:
        """Return the first fire after `previous`, or the first at or after `now`."""
        after = now - 1 if previous is None else previous
        if self._start is not None and after < self._start:
            after = self._start - 1
        fire = next_instant(self._schedule, self._zone, after)
        return fire if fire is None or self._end is None or fire <= self._end else None

    def first_fire(self, instant: int) -> int | None:
        """Return the first fire at or after an instant."""
        return self.next_fire(None, instant)

    def overdue(self, first: int, until: int, limit: int) -> tuple[int, list[int]]:
        """Count the fires from `first` up to `until`, and list the latest `limit` of them, by arithmetic."""
        if first > until:
            return 0, []
        after, last = first, until
        if self._start is not None:
            after = max(after, self._start - 1)
        if self._end is not None:
            last = min(last, self._end)
        count = 1 + count_fires(self._schedule, self._zone, after, last)
        fires = latest_fires(self._schedule, self._zone, after, last, limit) if count > 1 else []
        return count, (fires if len(fires) >= limit else [first, *fires])

    def _values(self) -> tuple[Any, ...]:
        return self._schedule.given, self.either_day, self._start, self._end, self._zone

    def describe(self) -> str:
        """Say in words when the trigger fires."""
        text = f"{describe_schedule(self._schedule)}, {shown_zone(self._zone)}"
        return with_options(text, self._zone, start=self._start, end=self._end, jitter=self.jitter)

    def _state(self) -> dict[str, Any]:
        given = zip(FIELD_NAMES, self._schedule.given, strict=True)
        return {
            "fields": {name: text for name, text in given if text is not None},
            "either_day": self.either_day,
            "start_date": self._start,
            "end_date": self._end,
            "jitter": self.jitter,
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        fields: dict[str, Any] = state["fields"]
        if not fields.keys() <= set(FIELD_NAMES) or not all(isinstance(text, str) for text in fields.values()):
            raise ValueError(f"these are not cron fields: {fields!r}")
        self._schedule = compile_schedule(tuple(map(fields.get, FIELD_NAMES)), bool(state.get("either_day")))
        self._start, self._end = read_optional_instant(state, "start_date"), read_optional_instant(state, "end_date")
        self.jitter = read_jitter(state)

    def _options(self, joined: str = "") -> list[str]:
        given = [(field.name, f"{field.name}='{field}'") for field in self.fields if not field.is_default]
        if self.either_day and joined:
            texts = dict(given)
            texts["day"] = texts["day"] + joined + texts.pop("day_of_week")
            return list(texts.values())
        return [text for _, text in given]

    def __str__(self) -> str:
        return f"cron[{', '.join(self._options(' or '))}]"

    def __repr__(self) -> str:
        return self._show(self._options())
