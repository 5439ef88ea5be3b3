"""The base of all triggers: a trigger computes a job's next fire time from the previous one and the time now."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, ClassVar, Final, Self

from mainspring.core.instants import SECOND, from_us, to_us
from mainspring.triggers.zones import Zone

__all__ = ["BaseTrigger", "InstantTrigger"]

_MOST_STEPS: Final = 5_000
"""Take at most this many steps forward, and as many back; beyond that, a count of fires is a lower bound."""


class BaseTrigger(ABC):
    """The base of all triggers.

    Your own trigger only needs `get_next_fire_time`. For a store that outlives the process, it also needs a class
    attribute `alias`, `to_data`, `from_data`, and `mainspring.triggers.register_trigger(YourTrigger)` (or an entry
    point of the group `mainspring.triggers`).
    """

    __slots__ = ()

    alias: ClassVar[str | None] = None
    jitter: float | None = None
    timezone: tzinfo | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__dict__
        if "alias" not in own:
            # A store must not restore a subclass of a built-in trigger as its parent.
            cls.alias = None
        if "get_next_fire_time" in own and "next_fire" not in own:
            # The kernel uses instants: lead it to the method of the subclass, not to the arithmetic of the parent.
            for name in ("next_fire", "first_fire", "overdue"):
                if name not in own:
                    setattr(cls, name, getattr(BaseTrigger, name))

    @abstractmethod
    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """Return the fire time after the previous one, or the first one as of `now`; None if there are no more."""

    def next_fire(self, previous: int | None, now: int) -> int | None:
        """Return the instant of the fire after `previous` (even if it is past), or of the first one as of `now`.

        Instants are microseconds since 1970, UTC. The result depends on the arguments only: it has no jitter.
        """
        tz = self.timezone or UTC
        before = None if previous is None else from_us(previous, tz)
        fire = self.get_next_fire_time(before, from_us(now, tz))
        if fire is None:
            return None
        if fire.tzinfo is None:
            raise ValueError(f"{type(self).__qualname__}.get_next_fire_time returned {fire!r}, which has no time zone")
        return to_us(fire)

    def first_fire(self, instant: int) -> int | None:
        """Return the first fire at or after an instant, regardless of earlier fires."""
        fire = self.next_fire(None, instant)
        for _ in range(_MOST_STEPS):
            if fire is None or fire >= instant:
                return fire
            fire = self.next_fire(fire, instant)
        return None

    def overdue(self, first: int, until: int, limit: int) -> tuple[int, list[int]]:
        """Count the fires from `first`, itself a fire, up to `until`, and list the latest `limit` of them, ascending.

        This takes at most about 10,000 steps. The count is exact up to 5,000 fires. Beyond that it is a lower bound,
        and a search back from `until` finds the list. Built-in triggers count by arithmetic.
        """
        if first > until:
            return 0, []
        fires = deque([first], maxlen=limit)
        count, fire = 1, first
        while count < _MOST_STEPS:
            following = self.next_fire(fire, until)
            if following is None or following > until or following <= fire:
                return count, list(fires)
            fires.append(following)
            count, fire = count + 1, following
        ahead = self.next_fire(None, until)
        if ahead is None or ahead > fire:  # else it ignores `now`, and a search back finds nothing
            latest = self._latest(fire, until, limit, (fire - first) // count)
            fires.extend(latest)
            count += len(latest)
        return count, list(fires)

    def _latest(self, after: int, until: int, limit: int, gap: int) -> list[int]:
        """Find the latest `limit` fires of (after, until] by trying windows of different sizes before `until`."""
        budget, most = _MOST_STEPS, 2 * limit + 50
        many, few = after, until + 1  # a window from `many` on has too many fires, one from `few` on too few
        width, found = max(gap * limit, 1), list[int]()
        while budget > 0 and few - many > 1:
            start = until - width if until - width > many else (many + few) // 2
            most = min(most, budget)
            fires = self._window(start, until, most)
            budget -= len(fires) + 1
            if len(fires) > most:
                many = start
                width = until - (many + few) // 2
            elif len(fires) >= limit:
                return fires[-limit:]
            else:
                few, found, width = start, fires, width * 4
        return found

    def _window(self, start: int, until: int, most: int) -> list[int]:
        """List the fires between two instants, one more than `most` if there are more."""
        fires: list[int] = []
        fire = self.first_fire(start)
        while fire is not None and fire <= until and len(fires) <= most:
            fires.append(fire)
            fire = self.next_fire(fire, until)
        return fires

    def describe(self) -> str:
        """Say in words when the trigger fires, such as `every weekday at 09:00, Europe/Berlin`."""
        return str(self)

    def to_data(self) -> dict[str, Any]:
        """Return the trigger as plain data (text, numbers, booleans, None, lists, dicts)."""
        raise TypeError(self._storable())

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Self:
        """Make the trigger from its plain data."""
        raise TypeError(f"{cls.__module__}.{cls.__qualname__} has no from_data: write it as the inverse of to_data")

    def _type(self) -> str:
        """Return the alias under which plain data finds this class again."""
        alias = type(self).alias
        if alias is None:
            raise TypeError(self._storable())
        return alias

    def _storable(self) -> str:
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        return (
            f"the trigger {name} cannot be stored: give the class an `alias`, a `to_data` and a classmethod"
            f" `from_data`, and call mainspring.triggers.register_trigger({type(self).__name__}) where it is defined"
        )

    def _apply_jitter(self, next_fire_time: datetime | None, jitter: float | None, now: datetime) -> datetime | None:
        """Delay a fire time by a random part of `jitter` seconds."""
        if next_fire_time is None or not jitter:
            return next_fire_time
        import random

        return next_fire_time + timedelta(seconds=random.uniform(0, jitter))


class InstantTrigger(BaseTrigger):
    """A trigger that computes with instants: a subclass defines `next_fire`, and this class derives the datetimes.

    Triggers are values: they are equal if their data are, hashable and picklable, and never change once in use.
    """

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "next_fire" in cls.__dict__:
            # get_next_fire_time calls this, so that a subclass may override it and still call super().
            cls._nominal = cls.__dict__["next_fire"]  # type: ignore[method-assign]
        super().__init_subclass__(**kwargs)

    @abstractmethod
    def next_fire(self, previous: int | None, now: int) -> int | None:
        """Return the instant of the fire after `previous` (even if it is past), or of the first one as of `now`."""

    def _nominal(self, previous: int | None, now: int) -> int | None:
        return self.next_fire(previous, now)

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """Return the fire time after the previous one, or the first one as of `now`, in the trigger's time zone."""
        zone = self._place()
        previous = None if previous_fire_time is None else to_us(previous_fire_time, zone)
        return self._shown(self._nominal(previous, to_us(now, zone)), zone)

    def _shown(self, fire: int | None, zone: Zone) -> datetime | None:
        """Turn a fire into a datetime, delayed by jitter but never past the end."""
        if fire is None:
            return None
        if self.jitter:
            import random

            fire += round(random.uniform(0, self.jitter) * SECOND)
            end = self._last()
            if end is not None:
                fire = min(fire, end)
        return from_us(fire, zone.tz)

    @abstractmethod
    def _place(self) -> Zone:
        """Return the zone that fire times are shown in."""

    def _last(self) -> int | None:
        """Return the instant after which nothing fires."""
        return None

    @abstractmethod
    def _values(self) -> tuple[Any, ...]:
        """Return the data that make two triggers of this class equal, without jitter."""

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, InstantTrigger)
        return self.jitter == other.jitter and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))
