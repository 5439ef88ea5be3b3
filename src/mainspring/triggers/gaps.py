"""Find the local times from which a change of the clock has moved a fire."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC

from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.calendarinterval import CalendarIntervalTrigger
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.zones import Zone

__all__ = ["walls_at"]


def walls_at(trigger: BaseTrigger, zone: Zone, fire: int) -> Iterator[int]:
    """Yield the local times that a fire at the end of a gap stands for, in order; none for a fire anywhere else.

    Yield none for a trigger that fires in real time, since a gap moves none of its fires.
    """
    if not isinstance(trigger, CronTrigger | CalendarIntervalTrigger) or _in_real_time(trigger):
        return
    start, _, offset, _ = zone.segment(fire)
    before = zone.segment(start - 1).offset if fire == start else offset
    if offset <= before:
        return
    # The same schedule without a zone has the times inside the gap.
    plain = _without_zone(trigger)
    wanted = plain.first_fire(fire + before)
    while wanted is not None and wanted <= fire + offset:
        yield wanted
        wanted = plain.next_fire(wanted, wanted)


def _without_zone(trigger: CronTrigger | CalendarIntervalTrigger) -> BaseTrigger:
    plain = type(trigger).__new__(type(trigger))
    # Drop the bounds of a cron trigger, which are instants and mean nothing here; a calendar interval has dates.
    bounds = {"start_date": None, "end_date": None} if isinstance(trigger, CronTrigger) else {}
    plain.__setstate__({**trigger.__getstate__(), "timezone": UTC, **bounds})
    return plain


def _in_real_time(trigger: BaseTrigger) -> bool:
    """Return True if a trigger fires at every instant that matches, so that no gap moves a fire."""
    return isinstance(trigger, CronTrigger) and any(
        field.name == "hour" and str(field).startswith("*") for field in trigger.fields
    )
