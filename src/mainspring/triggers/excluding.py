"""A trigger that does not fire at excluded times."""

from __future__ import annotations

from datetime import tzinfo
from itertools import islice
from typing import Any, Final, Self

from mainspring.triggers.base import BaseTrigger, InstantTrigger
from mainspring.triggers.data import read_zone
from mainspring.triggers.exclusions import Exclusions, read_exclusions
from mainspring.triggers.gaps import walls_at
from mainspring.triggers.zones import Zone, astimezone, get_localzone, zone_of

__all__ = ["ExcludingTrigger", "excluding", "is_all_excluded", "like", "plain_trigger"]

_MOST_LOOKS: Final = 10_000
"""Assume that a trigger never fires again after this many stretches of excluded time in a row without a free fire."""
_MOST_STRETCHES: Final = 5_000
"""Count overdue fires exactly over up to this many stretches of time between exclusions."""
_WALLS_LOOKED_AT: Final = 100


class ExcludingTrigger(InstantTrigger):
    """A trigger that fires when `trigger` does, except at the times of `exclude`, in the trigger's time zone.

    The time of a fire before jitter decides whether it is excluded.
    """

    __slots__ = ("_zone", "exclude", "trigger")
    alias = "excluding"

    def __init__(self, trigger: BaseTrigger, exclude: Any, timezone: tzinfo | str | None = None) -> None:
        if not isinstance(trigger, BaseTrigger):
            raise TypeError(f"ExcludingTrigger needs a trigger object, not {trigger!r}")
        self.trigger, self.exclude = trigger, read_exclusions(exclude)
        self._zone = zone_of(astimezone(trigger.timezone or timezone or get_localzone()))

    @property
    def timezone(self) -> tzinfo:  # type: ignore[override]
        """The time zone of excluded times and fire times."""
        return self._zone.tz

    @property
    def jitter(self) -> float | None:  # type: ignore[override]
        """The jitter of the trigger."""
        return self.trigger.jitter

    def next_fire(self, previous: int | None, now: int) -> int | None:
        """Return the first fire after `previous` that is not excluded, or the first one as of `now`."""
        return self._allowed(self.trigger.next_fire(previous, now))

    def first_fire(self, instant: int) -> int | None:
        """Return the first fire at or after an instant that is not excluded."""
        return self._allowed(self.trigger.first_fire(instant))

    def _allowed(self, fire: int | None) -> int | None:
        """Return the first fire from this one on that is not excluded; skip a stretch of excluded time in one step."""
        for _ in range(_MOST_LOOKS):
            if fire is None:
                return None
            free = self.exclude.free_from(fire, self._zone)
            if free == fire and not self._is_moved_out(fire):
                return fire
            fire = None if free is None else self.trigger.first_fire(max(free, fire + 1))
        return None

    def _is_moved_out(self, fire: int) -> bool:
        """Return True if a change of the clock moved a fire here from an excluded time."""
        walls = list(islice(walls_at(self.trigger, self._zone, fire), _WALLS_LOOKED_AT))
        return bool(walls) and all(self.exclude.wall_until(wall) is not None for wall in walls)

    def overdue(self, first: int, until: int, limit: int) -> tuple[int, list[int]]:
        """Count the fires from `first` up to `until`, and list the latest `limit` of them.

        Count the fires between the exclusions by arithmetic. The count is exact for up to 5,000 such stretches of time;
        beyond that it is a lower bound.
        """
        if first > until:
            return 0, []
        if self.exclude.free_from(first, self._zone) == first and self.exclude.blocked_from(first, self._zone) > until:
            return self.trigger.overdue(first, until, limit)
        stretches = self._stretches(first + 1, until)
        if stretches is None:
            return super().overdue(first, until, limit)
        count = 1 + sum(self.trigger.overdue(start, stop, 0)[0] for start, stop in stretches)
        fires: list[int] = []
        for start, stop in reversed(stretches):
            if len(fires) >= limit:
                break
            fires[:0] = self.trigger.overdue(start, stop, limit - len(fires))[1]
        return count, fires if len(fires) >= limit else [first, *fires]

    def _stretches(self, instant: int, until: int) -> list[tuple[int, int]] | None:
        """Return the first fire and the end of each stretch of free time that has fires; None if they are too many."""
        found: list[tuple[int, int]] = []
        for _ in range(_MOST_STRETCHES):
            free = self.exclude.free_from(instant, self._zone)
            if free is None or free > until:
                return found
            stop = min(self.exclude.blocked_from(free, self._zone) - 1, until)
            start = self.trigger.first_fire(free + self._is_moved_out(free))
            if start is None:
                return found
            if start <= stop:
                found.append((start, stop))
            elif start > until:
                return found
            instant = max(stop + 1, start)
        return None

    def _place(self) -> Zone:
        return self._zone

    def _last(self) -> int | None:
        return self.trigger._last() if isinstance(self.trigger, InstantTrigger) else None

    def _values(self) -> tuple[Any, ...]:
        return self.trigger, self.exclude, self._zone

    def describe(self) -> str:
        """Say in words when the trigger fires."""
        words = self.exclude.describe()
        return f"{self.trigger.describe()}, except {words}" if words else self.trigger.describe()

    def to_data(self) -> dict[str, Any]:
        """Return the trigger as plain data."""
        return {
            "type": self._type(),
            "trigger": self.trigger.to_data(),
            "exclude": self.exclude.to_data(),
            "timezone": self._zone.name(),
        }

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Self:
        """Make the trigger from its plain data."""
        from mainspring.triggers import trigger_from_data

        self = cls.__new__(cls)
        self.trigger, self.exclude = trigger_from_data(data["trigger"]), Exclusions.from_data(data["exclude"])
        self._zone = read_zone(data)
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {"version": 1, "trigger": self.trigger, "exclude": self.exclude, "timezone": self._zone.tz}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.trigger, self.exclude, self._zone = state["trigger"], state["exclude"], zone_of(state["timezone"])

    def __str__(self) -> str:
        return f"{self.trigger} except {self.exclude.describe()}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}({self.trigger!r}, {self.exclude!r})>"


def plain_trigger(trigger: BaseTrigger) -> BaseTrigger:
    """Return a trigger without its exclusions."""
    while isinstance(trigger, ExcludingTrigger):
        trigger = trigger.trigger
    return trigger


def excluding(trigger: BaseTrigger, exclude: Any, zone: tzinfo) -> BaseTrigger:
    """Return a trigger with its exclusions replaced by these; without any if there is nothing to exclude."""
    exclusions = read_exclusions(exclude)
    plain = plain_trigger(trigger)
    return ExcludingTrigger(plain, exclusions, zone) if exclusions else plain


def like(trigger: BaseTrigger, before: BaseTrigger) -> BaseTrigger:
    """Return a trigger with the exclusions of the one that it replaces, unless it already has some."""
    if isinstance(before, ExcludingTrigger) and not isinstance(trigger, ExcludingTrigger):
        return ExcludingTrigger(trigger, before.exclude, before.timezone)
    return trigger


def is_all_excluded(trigger: BaseTrigger, now: int) -> bool:
    """Return True if a trigger has fires left, but all of them are excluded."""
    if not isinstance(trigger, ExcludingTrigger):
        return False
    return trigger.first_fire(now) is None and plain_trigger(trigger).first_fire(now) is not None
