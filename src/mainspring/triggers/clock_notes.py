"""Notes on fires at a clock change: the time does not exist, comes twice, or moves on the local clock."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Final, Literal, NamedTuple

from mainspring.core.instants import EPOCH, SECOND
from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.calendarinterval import CalendarIntervalTrigger
from mainspring.triggers.combining import BaseCombiningTrigger
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.interval import IntervalTrigger
from mainspring.triggers.zones import Zone, astimezone, zone_of

__all__ = ["ClockNote", "clock_note"]

_HOUR: Final = 3600 * SECOND


class ClockNote(NamedTuple):
    """A sentence about one fire, and its kind.

    `gap`: its time does not exist that day. `twice`: its time comes twice, and it fires both times. `once`: its time
    comes twice, and it fires the first time only. `jumped`: it moves by the local clock, as an interval of a day does.
    """

    kind: Literal["gap", "twice", "once", "jumped"]
    text: str


def clock_note(trigger: BaseTrigger, fire: int, previous: int | None = None) -> ClockNote | None:
    """Return what a clock change does to a fire of a trigger; `previous` is the fire before it, if known."""
    if isinstance(trigger, BaseCombiningTrigger):
        agreeing = (each for each in trigger.triggers if each.first_fire(fire) == fire)
        notes = (clock_note(each, fire, previous) for each in agreeing)
        return next((note for note in notes if note is not None), None)
    if trigger.timezone is None:
        return None
    zone = zone_of(astimezone(trigger.timezone))
    if isinstance(trigger, CronTrigger | CalendarIntervalTrigger):
        return _gap(trigger, zone, fire) or _fold(trigger, zone, fire)
    if isinstance(trigger, IntervalTrigger):
        return _jump(trigger, zone, fire, previous)
    return None


def _gap(trigger: CronTrigger | CalendarIntervalTrigger, zone: Zone, fire: int) -> ClockNote | None:
    start, _, offset, _ = zone.segment(fire)
    before = zone.segment(start - 1).offset
    if fire != start or offset <= before or _in_real_time(trigger):
        return None
    # The same schedule without a zone says which times it would have had inside the gap.
    wanted = _without_zone(trigger).first_fire(fire + before)
    if wanted is None or wanted >= fire + offset:
        return None
    return ClockNote(
        "gap",
        f"{_clock(wanted)} does not exist that day: the clock goes from {_clock(fire + before)} to "
        f"{_clock(fire + offset)}",
    )


def _without_zone(trigger: CronTrigger | CalendarIntervalTrigger) -> BaseTrigger:
    plain = type(trigger).__new__(type(trigger))
    # The bounds of a cron trigger are instants, which mean nothing here; those of a calendar interval are dates.
    bounds = {"start_date": None, "end_date": None} if isinstance(trigger, CronTrigger) else {}
    plain.__setstate__({**trigger.__getstate__(), "timezone": UTC, **bounds})
    return plain


def _in_real_time(trigger: BaseTrigger) -> bool:
    """Return True if a trigger fires at every instant that matches, so that no gap swallows a fire."""
    return isinstance(trigger, CronTrigger) and any(
        field.name == "hour" and str(field).startswith("*") for field in trigger.fields
    )


def _fold(trigger: CronTrigger | CalendarIntervalTrigger, zone: Zone, fire: int) -> ClockNote | None:
    wall = zone.wall(fire)
    first, second = zone.instant(wall), zone.second_pass(wall)
    if first == second:
        return None
    if trigger.first_fire(first) != first or trigger.first_fire(second) != second:
        return ClockNote("once", f"{_clock(wall)} comes twice that day, and it fires the first time only")
    which = "first" if fire == first else "second"
    return ClockNote("twice", f"{_clock(wall)} comes twice that day, and it fires both times: this is the {which}")


def _jump(trigger: IntervalTrigger, zone: Zone, fire: int, previous: int | None) -> ClockNote | None:
    if previous is None:
        return None
    shift = zone.segment(fire).offset - zone.segment(previous).offset
    # Every half hour stays every half hour when the clock moves by an hour; every day moves.
    if not shift % (trigger.interval // timedelta(microseconds=1)):
        return None
    way = "later" if shift > 0 else "earlier"
    return ClockNote("jumped", f"by the local clock it is {_length(abs(shift))} {way} from here on")


def _clock(wall: int) -> str:
    shown = EPOCH + timedelta(microseconds=wall)
    return f"{shown:%H:%M:%S}" if wall % (60 * SECOND) else f"{shown:%H:%M}"


def _length(us: int) -> str:
    return f"{us // _HOUR} h" if not us % _HOUR else f"{us // (60 * SECOND)} min"
