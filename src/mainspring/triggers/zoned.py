"""The base of all triggers with one time zone, which shows, stores and pickles them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Any, Self

from mainspring.core.instants import from_us
from mainspring.triggers.base import InstantTrigger
from mainspring.triggers.data import read_zone
from mainspring.triggers.zones import Zone, zone_of
from mainspring.util import datetime_repr

__all__ = ["BoundedTrigger", "ZonedTrigger"]


class ZonedTrigger(InstantTrigger):
    """A trigger whose dates are in one time zone; a subclass defines its other state."""

    __slots__ = ("_zone",)
    _zone: Zone

    @property
    def timezone(self) -> tzinfo:  # type: ignore[override]
        """The time zone of naive dates and of fire times."""
        return self._zone.tz

    def _place(self) -> Zone:
        return self._zone

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """Return everything but the type and the time zone, as plain data."""

    @abstractmethod
    def _restore(self, state: Mapping[str, Any]) -> None:
        """Set everything but the time zone from the data of `_state`; raise ValueError if they are damaged."""

    def to_data(self) -> dict[str, Any]:
        """Return the trigger as plain data."""
        return {"type": self._type(), **self._state(), "timezone": self._zone.name()}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Self:
        """Make the trigger from its plain data."""
        self = cls.__new__(cls)
        self._zone = read_zone(data)
        self._restore(data)
        return self

    def __getstate__(self) -> dict[str, Any]:
        # A pickle keeps the zone itself: unlike plain data, it can hold a zone without a name.
        return {"version": 1, **self._state(), "timezone": self._zone.tz}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._zone = zone_of(state["timezone"])
        self._restore(state)


class BoundedTrigger(ZonedTrigger):
    """A trigger with an optional first and an optional last instant."""

    __slots__ = ("_end", "_start", "jitter")
    _start: int | None
    _end: int | None

    @property
    def start_date(self) -> datetime | None:
        """The time before which nothing fires."""
        return None if self._start is None else from_us(self._start, self._zone.tz)

    @property
    def end_date(self) -> datetime | None:
        """The time after which nothing fires."""
        return None if self._end is None else from_us(self._end, self._zone.tz)

    def _last(self) -> int | None:
        return self._end

    def _show(self, options: list[str]) -> str:
        """Return the repr of the trigger: the options of its class, then those of all bounded triggers."""
        if self._start is not None:
            options.append(f"start_date={datetime_repr(self.start_date)!r}")
        if self._end is not None:
            options.append(f"end_date={datetime_repr(self.end_date)!r}")
        if self.jitter:
            options.append(f"jitter={self.jitter}")
        return f"<{type(self).__name__} ({', '.join(options)}, timezone='{self.timezone}')>"
