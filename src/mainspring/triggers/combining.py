"""Combine triggers: fire when all of them do, or when any of them does."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, Self

from mainspring.triggers.base import BaseTrigger, InstantTrigger
from mainspring.triggers.data import check_jitter
from mainspring.triggers.words import with_options
from mainspring.triggers.zones import DAY, MAX_INSTANT, Zone, astimezone, zone_of

__all__ = ["AndTrigger", "BaseCombiningTrigger", "OrTrigger"]

_MOST_CANDIDATES: Final = 10_000
_HORIZON_US: Final = 100 * 366 * DAY
"""An `and` assumes that its triggers never meet if they do not agree within this many fires, or this long a time."""
_MOST_LOOKS: Final = 100_000
"""The most lookups in single triggers for counting the overdue fires of an `and`."""

_DESCRIBED_DEPTH: Final = 3
_DESCRIBED_TRIGGERS: Final = 4
"""Limit the depth and width of the description of a combination: the same trigger may be in many places."""


def _first_fire(trigger: BaseTrigger, instant: int, budget: list[int]) -> int | None:
    """Return the first fire of one trigger, charging a budget that nested combinations share."""
    if isinstance(trigger, BaseCombiningTrigger) and type(trigger).first_fire is BaseCombiningTrigger.first_fire:
        # Do not even descend once the budget is spent: the same trigger may be inside in many places.
        return trigger._seek(instant, budget) if budget[0] >= 0 else None
    budget[0] -= 1
    return trigger.first_fire(instant) if budget[0] >= 0 else None


def _past_fire(trigger: BaseTrigger, now: int, budget: list[int]) -> int | None:
    """Return the first fire of a trigger if it is before `now`, as for a past date."""
    if budget[0] < 0:
        return None
    if isinstance(trigger, BaseCombiningTrigger) and type(trigger).next_fire is BaseCombiningTrigger.next_fire:
        return trigger._past(now, budget)
    budget[0] -= 1
    fire = trigger.next_fire(None, now)
    return fire if fire is not None and fire < now else None


class BaseCombiningTrigger(InstantTrigger):
    """The base of `and` and `or`: the triggers, and a jitter for the combination.

    The combination ignores the jitter of each trigger; if it has no jitter itself, it takes the largest of them.
    """

    __slots__ = ("jitter", "triggers")

    def __init__(self, triggers: Iterable[BaseTrigger], jitter: float | None = None) -> None:
        self.triggers = list(triggers)
        if not self.triggers:
            raise ValueError(f"{type(self).__name__} needs one trigger at least")
        for trigger in self.triggers:
            if not isinstance(trigger, BaseTrigger):
                raise TypeError(f"{type(self).__name__} combines trigger objects, not {trigger!r}")
        if jitter is None:
            jitter = max((trigger.jitter for trigger in self.triggers if trigger.jitter), default=None)
        self.jitter = check_jitter(jitter)

    @property
    def timezone(self) -> tzinfo:  # type: ignore[override]
        """The time zone of fire times: that of the first trigger that has one."""
        zones = (trigger.timezone for trigger in self.triggers)  # read once each: they may be nested deeply
        return next((zone for zone in zones if zone is not None), UTC)

    def next_fire(self, previous: int | None, now: int) -> int | None:
        """Return the first fire after `previous`, or the first one as of `now`."""
        if previous is not None:
            return self.first_fire(previous + 1)
        past = self._past(now, [_MOST_CANDIDATES])
        return self.first_fire(now) if past is None else past

    @abstractmethod
    def _past(self, now: int, budget: list[int]) -> int | None:
        """Return the first fire of the combination if it is before `now`, as for a past date."""

    def first_fire(self, instant: int) -> int | None:
        """Return the first fire at or after an instant; None also if 10,000 fires or 100 years bring no agreement."""
        return self._seek(instant, [_MOST_CANDIDATES])

    @abstractmethod
    def _seek(self, instant: int, budget: list[int]) -> int | None:
        """Return the first fire at or after an instant, or None once the budget of candidates is spent."""

    def _place(self) -> Zone:
        return zone_of(astimezone(self.timezone))

    def _values(self) -> tuple[Any, ...]:
        return tuple(self.triggers)

    def to_data(self) -> dict[str, Any]:
        """Return the trigger as plain data."""
        triggers = [trigger.to_data() for trigger in self.triggers]
        return {"type": self._type(), "triggers": triggers, "jitter": self.jitter}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Self:
        """Make the trigger from its plain data."""
        from mainspring.triggers import trigger_from_data

        return cls([trigger_from_data(item) for item in data["triggers"]], data.get("jitter"))

    def __getstate__(self) -> dict[str, Any]:
        return {"version": 1, "triggers": self.triggers, "jitter": self.jitter}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.triggers, self.jitter = list(state["triggers"]), state.get("jitter")

    def describe(self) -> str:
        """Say in words when the trigger fires."""
        return with_options(self._words(_DESCRIBED_DEPTH), self._place(), jitter=self.jitter)

    def _words(self, depth: int) -> str:
        if not depth:
            return f"a combination of {len(self.triggers)} triggers"
        shown = self.triggers[:_DESCRIBED_TRIGGERS]
        words = [
            f"({trigger._words(depth - 1)})" if isinstance(trigger, BaseCombiningTrigger) else trigger.describe()
            for trigger in shown
        ]
        if len(shown) < len(self.triggers):
            words.append(f"{len(self.triggers) - len(shown)} more")
        return f"; {self.alias or type(self).__name__} ".join(words)

    def __str__(self) -> str:
        return f"{type(self).__name__.removesuffix('Trigger').lower()}[{', '.join(map(str, self.triggers))}]"

    def __repr__(self) -> str:
        jitter = f", jitter={self.jitter}" if self.jitter else ""
        return f"<{type(self).__name__}({self.triggers}{jitter})>"


class AndTrigger(BaseCombiningTrigger):
    """A trigger that fires at the instants that all its triggers share; it ends when any of them does."""

    __slots__ = ()
    alias = "and"

    def _past(self, now: int, budget: list[int]) -> int | None:
        fires = {_past_fire(trigger, now, budget) for trigger in self.triggers}
        return fires.pop() if len(fires) == 1 else None

    def _seek(self, instant: int, budget: list[int]) -> int | None:
        candidate, agreed, place, horizon = instant, 0, 0, MAX_INSTANT
        while agreed < len(self.triggers):
            fire = _first_fire(self.triggers[place % len(self.triggers)], candidate, budget)
            if fire is None or fire > horizon:
                return None
            agreed = agreed + 1 if place and fire == candidate else 1
            candidate, place = fire, place + 1
            if place == len(self.triggers):
                horizon = candidate + _HORIZON_US
        return candidate

    def overdue(self, first: int, until: int, limit: int) -> tuple[int, list[int]]:
        """Count the fires from `first` up to `until`, and list the latest `limit` of them.

        The count is exact up to 5,000 fires and 100,000 lookups in the triggers; beyond that it is a lower bound.
        """
        return _Walk(self).overdue(first, until, limit)


class OrTrigger(BaseCombiningTrigger):
    """A trigger that fires whenever any of its triggers does; it ends when all of them have ended."""

    __slots__ = ()
    alias = "or"

    def _past(self, now: int, budget: list[int]) -> int | None:
        return min((fire for t in self.triggers if (fire := _past_fire(t, now, budget)) is not None), default=None)

    def _seek(self, instant: int, budget: list[int]) -> int | None:
        fires = [_first_fire(trigger, instant, budget) for trigger in self.triggers]
        if budget[0] < 0:  # the budget ended before all triggers were read, and one of the others may be first
            return None
        return min((fire for fire in fires if fire is not None), default=None)

    def _members(self) -> list[BaseTrigger]:
        """Return the triggers, once each; replace an `or` inside this one with its triggers."""
        members: dict[int, BaseTrigger] = {}
        left = list(reversed(self.triggers))
        while left:
            trigger = left.pop()
            if id(trigger) not in members:
                members[id(trigger)] = trigger
                left += reversed(trigger.triggers) if type(trigger) is OrTrigger else ()
        return [trigger for trigger in members.values() if type(trigger) is not OrTrigger]

    def overdue(self, first: int, until: int, limit: int) -> tuple[int, list[int]]:
        """Count the fires from `first` up to `until`, and list the latest `limit` of them.

        The list is exact. The count is exact up to 10,000 fires of the triggers together. Beyond that it is a lower
        bound, the count of the busiest trigger: only a walk over all fires shows how many the triggers share.
        """
        if first > until:
            return 0, []
        starts = [(trigger, trigger.first_fire(first)) for trigger in self._members()]
        due = [(trigger, start) for trigger, start in starts if start is not None and start <= until]
        counts = [trigger.overdue(start, until, 0)[0] for trigger, start in due]
        total = 1 + sum(counts)
        fires = {first}
        for trigger, start in due:
            fires.update(trigger.overdue(start, until, max(limit, total) if total <= _MOST_CANDIDATES else limit)[1])
        latest = sorted(fires)
        count = len(latest) if total <= _MOST_CANDIDATES else max(*counts, len(latest))
        return count, latest[-limit:] if limit else []


class _Walk(BaseTrigger):
    """The fires of a combination, found within one budget."""

    def __init__(self, trigger: BaseCombiningTrigger) -> None:
        self._trigger, self._budget = trigger, [_MOST_LOOKS]

    def next_fire(self, previous: int | None, now: int) -> int | None:
        """Return the first fire after `previous`, or the first one from `now` on."""
        return self.first_fire(now if previous is None else previous + 1)

    def first_fire(self, instant: int) -> int | None:
        """Return the first fire at or after an instant; None also once the budget is spent."""
        return _first_fire(self._trigger, instant, self._budget)

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """Refuse: a walk uses instants only."""
        raise NotImplementedError
