"""What a change of the clock does to a fire, said in a sentence."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from mainspring.core.instants import EPOCH
from mainspring.triggers import AndTrigger, OrTrigger
from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.calendarinterval import CalendarIntervalTrigger
from mainspring.triggers.clock_notes import clock_note
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.date import DateTrigger
from mainspring.triggers.interval import IntervalTrigger

BERLIN = "Europe/Berlin"
SPRING, AUTUMN = datetime(2027, 3, 27, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)


def us(moment: datetime) -> int:
    return int((moment - EPOCH).total_seconds()) * 1_000_000


def notes(trigger: BaseTrigger, since: datetime, number: int) -> list[tuple[str, str] | None]:
    """Return the kind and the sentence of each of the next fires."""
    fires = [trigger.first_fire(us(since))]
    while len(fires) < number:
        fires.append(trigger.next_fire(fires[-1], fires[-1]))  # type: ignore[arg-type]
    found = [clock_note(trigger, fires[0])]  # type: ignore[arg-type]
    found += [clock_note(trigger, fire, before) for before, fire in pairwise(fires)]  # type: ignore[arg-type]
    return [None if note is None else (note.kind, note.text) for note in found]


def daily(**options: Any) -> CalendarIntervalTrigger:
    return CalendarIntervalTrigger(days=1, start_date="2026-01-01", timezone=BERLIN, **options)


@pytest.mark.parametrize(
    "trigger", [CronTrigger.from_crontab("30 2 * * *", BERLIN), daily(hour=2, minute=30)], ids=["cron", "calendar"]
)
def test_a_time_that_does_not_exist_is_noted_on_that_day_only(trigger: BaseTrigger) -> None:
    gap = ("gap", "02:30 does not exist that day: the clock goes from 02:00 to 03:00")
    assert notes(trigger, SPRING, 3) == [gap, None, None]


def test_a_time_at_the_end_of_the_gap_is_as_always() -> None:
    assert notes(CronTrigger.from_crontab("0 3 * * *", BERLIN), SPRING, 2) == [None, None]


def test_a_schedule_in_real_time_has_no_gap() -> None:
    assert notes(CronTrigger.from_crontab("*/30 * * * *", BERLIN), SPRING, 60) == [None] * 60


@pytest.mark.parametrize(
    "trigger", [CronTrigger.from_crontab("30 2 * * *", BERLIN), daily(hour=2, minute=30)], ids=["cron", "calendar"]
)
def test_a_time_that_comes_twice_fires_the_first_time_only(trigger: BaseTrigger) -> None:
    once = ("once", "02:30 comes twice that day, and it fires the first time only")
    assert notes(trigger, AUTUMN, 3) == [once, None, None]


def test_a_schedule_in_real_time_fires_both_times() -> None:
    found = notes(CronTrigger.from_crontab("30 * * * *", BERLIN), AUTUMN, 24)
    text = "02:30 comes twice that day, and it fires both times: this is the "
    assert [note for note in found if note] == [("twice", text + "first"), ("twice", text + "second")]


def test_half_an_hour_is_called_so() -> None:
    lord_howe = CronTrigger.from_crontab("15 2 * * *", "Australia/Lord_Howe")
    found = notes(lord_howe, datetime(2026, 10, 2, tzinfo=UTC), 3)
    assert [note for note in found if note] == [
        ("gap", "02:15 does not exist that day: the clock goes from 02:00 to 02:30")
    ]


def test_an_interval_of_a_day_moves_by_the_local_clock() -> None:
    later = ("jumped", "by the local clock it is 1 h later from here on")
    spring = IntervalTrigger(days=1, start_date="2027-03-20 08:00:00", timezone=BERLIN)
    assert notes(spring, datetime(2027, 3, 26, 12, tzinfo=UTC), 3) == [None, later, None]
    earlier = ("jumped", "by the local clock it is 1 h earlier from here on")
    autumn = IntervalTrigger(days=1, start_date="2026-10-20 08:00:00", timezone=BERLIN)
    assert notes(autumn, datetime(2026, 10, 23, 12, tzinfo=UTC), 3) == [None, earlier, None]


def test_an_interval_that_fits_the_change_does_not_move() -> None:
    every_half_hour = IntervalTrigger(minutes=30, start_date="2026-10-20 08:00:00", timezone=BERLIN)
    assert notes(every_half_hour, AUTUMN, 60) == [None] * 60


def test_combined_triggers_have_the_note_of_the_one_that_fires() -> None:
    night, noon = CronTrigger.from_crontab("30 2 * * *", BERLIN), CronTrigger.from_crontab("0 12 * * *", BERLIN)
    either = notes(OrTrigger([noon, night]), SPRING, 3)
    assert [note and note[0] for note in either] == ["gap", None, None]
    both = AndTrigger([night, CronTrigger.from_crontab("0,30 2,3 * * *", BERLIN)])
    assert [note and note[0] for note in notes(both, SPRING, 2)] == ["gap", None]


def test_a_date_and_a_zone_without_changes_have_no_notes() -> None:
    assert clock_note(DateTrigger(SPRING), us(SPRING)) is None
    assert notes(CronTrigger.from_crontab("30 2 * * *", "UTC"), SPRING, 3) == [None] * 3
