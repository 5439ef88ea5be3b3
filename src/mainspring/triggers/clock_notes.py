"""Notes on fires at a clock change: the time does not exist, comes twice, or moves on the local clock."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Literal, NamedTuple

from mainspring.core.instants import SECOND, from_us
from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.calendarinterval import CalendarIntervalTrigger
from mainspring.triggers.combining import BaseCombiningTrigger
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.excluding import ExcludingTrigger, plain_trigger
from mainspring.triggers.gaps import walls_at
from mainspring.triggers.interval import IntervalTrigger
from mainspring.triggers.zones import Zone, astimezone, zone_of

__all__ = ["ClockNote", "clock_note", "fire_note"]

_HOUR: Final = 3600 * SECOND


class ClockNote(NamedTuple):
    """A sentence about one fire, and its kind.

    `gap`: the time of the fire does not exist that day. `twice`: the time comes twice, and it fires both times. `once`:
    the time comes twice, and it fires the first time only. `jumped`: the local time of the fire changes, as for an
    interval of a day. `excluded`: fires before it are left out.
    """

    kind: Literal["gap", "twice", "once", "jumped", "excluded"]
    text: str


def clock_note(trigger: BaseTrigger, fire: int, previous: int | None = None) -> ClockNote | None:
    """Return a note if a clock change affects a fire of a trigger; `previous` is the fire before it, if known."""
    trigger = plain_trigger(trigger)
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


def fire_note(trigger: BaseTrigger, fire: int, previous: int | None = None) -> ClockNote | None:
    """Return the note on a fire: how a clock change affects it, or that fires before it are excluded."""
    note = clock_note(trigger, fire, previous)
    if note is not None or previous is None or not isinstance(trigger, ExcludingTrigger):
        return note
    left_out = trigger.trigger.next_fire(previous, previous)
    if left_out is None or left_out >= fire:
        return None
    number = trigger.trigger.overdue(left_out, fire - 1, 0)[0]
    first = f"{from_us(left_out, trigger.timezone):%a %Y-%m-%d %H:%M}"
    text = f"the fire of {first} is excluded" if number == 1 else f"{number:,} fires from {first} on are excluded"
    return ClockNote("excluded", text)


def _gap(trigger: CronTrigger | CalendarIntervalTrigger, zone: Zone, fire: int) -> ClockNote | None:
    start, _, offset, _ = zone.segment(fire)
    wanted = next(walls_at(trigger, zone, fire), None)
    if wanted is None or wanted >= fire + offset:
        return None
    before = zone.segment(start - 1).offset
    return ClockNote(
        "gap",
        f"{_clock(wanted)} does not exist that day: the clock goes from {_clock(fire + before)} to "
        f"{_clock(fire + offset)}",
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
    # If the clock changes by an hour, an interval of half an hour keeps its local times; an interval of a day does not.
    if not shift % (trigger.interval // timedelta(microseconds=1)):
        return None
    way = "later" if shift > 0 else "earlier"
    return ClockNote("jumped", f"by the local clock it is {_length(abs(shift))} {way} from here on")


def _clock(wall: int) -> str:
    return f"{from_us(wall):%H:%M:%S}" if wall % (60 * SECOND) else f"{from_us(wall):%H:%M}"


def _length(us: int) -> str:
    return f"{us // _HOUR} h" if not us % _HOUR else f"{us // (60 * SECOND)} min"
