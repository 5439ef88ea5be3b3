"""The written rule of docs/time.md, against a scan of every minute around every change of offset."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, time, timedelta
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.triggers.calendarinterval import CalendarIntervalTrigger
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.interval import IntervalTrigger
from tests.triggers.oracle import (
    HOUR,
    clock,
    fires_shown,
    scan_real_time,
    scan_wall_clock,
    shown,
    thoroughly,
    transitions,
    us,
    walk,
)

ZONES = [(zone, [change for _, change in changes]) for zone, changes in groupby(transitions(), lambda pair: pair[0])]


def at(hours: set[int], minutes: set[int]) -> Callable[[int], bool]:
    return lambda wall: wall % 60 in minutes and wall // 60 % 24 in hours


@pytest.mark.parametrize(("zone", "changes"), ZONES, ids=[zone for zone, _ in ZONES])
class TestEveryTransitionOf2020To2040:
    def test_fixed_times_fire_once_each(self, zone: str, changes: list[int]) -> None:
        trigger = CronTrigger(hour="0-23", minute="7,30,45", timezone=zone)
        matches = at(set(range(24)), {7, 30, 45})
        for change in changes:
            minutes = clock(zone, change - 4 * HOUR, change + 4 * HOUR)
            assert walk(trigger, minutes[0][0], minutes[-1][0]) == scan_wall_clock(minutes, matches)

    def test_wildcard_hours_fire_in_real_time(self, zone: str, changes: list[int]) -> None:
        trigger = CronTrigger(minute="7,30,45", timezone=zone)
        matches = at(set(range(24)), {7, 30, 45})
        for change in changes:
            minutes = clock(zone, change - 4 * HOUR, change + 4 * HOUR)
            assert walk(trigger, minutes[0][0], minutes[-1][0]) == scan_real_time(minutes, matches)

    def test_calendar_intervals_fire_once_a_day(self, zone: str, changes: list[int]) -> None:
        for change in changes[::9]:
            minutes = clock(zone, change - 25 * HOUR, change + 25 * HOUR)
            for hour, minute in (0, 0), (2, 30), (23, 45):
                start = date(1970, 1, 1) + timedelta(minutes=minutes[0][1])
                trigger = CalendarIntervalTrigger(days=1, hour=hour, minute=minute, start_date=start, timezone=zone)
                expected = scan_wall_clock(minutes, at({hour}, {minute}))
                assert walk(trigger, minutes[0][0], minutes[-1][0]) == expected


hours = st.one_of(
    st.sampled_from(["*", "*/2", "*/3", "0", "1", "2", "3", "23", "0-23", "1-3", "22-23,0-4"]),
    st.sets(st.integers(0, 23), min_size=1, max_size=5).map(lambda hours: ",".join(map(str, sorted(hours)))),
)
minutes = st.one_of(
    st.sampled_from(["*", "*/15", "0", "30", "59", "0-10"]),
    st.sets(st.integers(0, 59), min_size=1, max_size=4).map(lambda minutes: ",".join(map(str, sorted(minutes)))),
)


def values(text: str, top: int) -> set[int]:
    """Read a field independently of the parser under test."""
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        low, _, high = ("0", "-", str(top)) if span == "*" else span.partition("-")
        found.update(range(int(low), int(high or low) + 1, int(step or 1)))
    return found


class TestAnyScheduleAtAnyTransition:
    @thoroughly
    @given(st.sampled_from(transitions()), hours, minutes)
    def test_the_next_fires_are_those_of_a_minute_scan(self, change: tuple[str, int], hour: str, minute: str) -> None:
        zone, instant = change
        trigger = CronTrigger(hour=hour, minute=minute, timezone=zone)
        seen = clock(zone, instant - 8 * HOUR, instant + 8 * HOUR)
        scan = scan_real_time if hour.startswith("*") else scan_wall_clock
        assert walk(trigger, seen[0][0], seen[-1][0]) == scan(seen, at(values(hour, 23), values(minute, 59)))

    @thoroughly
    @given(st.sampled_from(transitions()), hours, minutes, st.integers(-3 * HOUR, 3 * HOUR))
    def test_the_next_fire_from_any_instant_is_that_of_a_minute_scan(
        self, change: tuple[str, int], hour: str, minute: str, start: int
    ) -> None:
        zone, instant = change
        trigger = CronTrigger(hour=hour, minute=minute, timezone=zone)
        seen = clock(zone, instant - 4 * HOUR, instant + 6 * HOUR)
        scan = scan_real_time if hour.startswith("*") else scan_wall_clock
        fires = scan(seen, at(values(hour, 23), values(minute, 59)))
        fire = trigger.next_fire(None, instant + start)
        assert fire is not None
        assert [fire for fire in fires if fire >= instant + start][:1] == ([fire] if fire <= seen[-1][0] else [])

    @thoroughly
    @given(st.sampled_from(transitions()), hours, minutes, st.integers(-6 * HOUR, 6 * HOUR), st.integers(1, 9))
    def test_overdue_fires_are_those_of_a_walk(
        self, change: tuple[str, int], hour: str, minute: str, until: int, limit: int
    ) -> None:
        zone, instant = change
        trigger = CronTrigger(hour=hour, minute=minute, timezone=zone)
        first = trigger.next_fire(None, instant - 30 * HOUR)
        assert first is not None
        fires = walk(trigger, first, instant + until)
        assert trigger.overdue(first, instant + until, limit) == (len(fires), fires[-limit:])


class TestTheRuleByExample:
    def test_a_time_in_a_gap_fires_when_the_gap_ends(self) -> None:
        trigger = CronTrigger(hour=2, minute=30, timezone="Europe/Berlin")
        assert fires_shown(trigger, "2026-03-28 00:00", "2026-03-30 12:00", "Europe/Berlin") == [
            "2026-03-28 02:30:00+01:00",
            "2026-03-29 03:00:00+02:00",
            "2026-03-30 02:30:00+02:00",
        ]

    def test_several_times_in_one_gap_fire_once(self) -> None:
        trigger = CronTrigger(hour="2,3", minute="0,20,40", timezone="Europe/Berlin")
        assert fires_shown(trigger, "2026-03-29 00:00", "2026-03-29 12:00", "Europe/Berlin") == [
            "2026-03-29 03:00:00+02:00",
            "2026-03-29 03:20:00+02:00",
            "2026-03-29 03:40:00+02:00",
        ]

    def test_a_time_in_an_overlap_fires_at_its_first_pass(self) -> None:
        trigger = CronTrigger(hour=2, minute=30, timezone="Europe/Berlin")
        assert fires_shown(trigger, "2026-10-25 00:00", "2026-10-26 12:00", "Europe/Berlin") == [
            "2026-10-25 02:30:00+02:00",
            "2026-10-26 02:30:00+01:00",
        ]

    @pytest.mark.parametrize("hour", [None, "*", "*/1"])
    def test_wildcard_hours_fire_in_both_passes_of_an_overlap(self, hour: str | None) -> None:
        trigger = CronTrigger(hour=hour, minute=30, timezone="Europe/Berlin")
        assert fires_shown(trigger, "2026-10-25 01:00", "2026-10-25 04:00", "Europe/Berlin") == [
            "2026-10-25 01:30:00+02:00",
            "2026-10-25 02:30:00+02:00",
            "2026-10-25 02:30:00+01:00",
            "2026-10-25 03:30:00+01:00",
        ]

    def test_wildcard_hours_fire_nothing_extra_for_a_gap(self) -> None:
        trigger = CronTrigger(minute=30, timezone="Europe/Berlin")
        assert fires_shown(trigger, "2026-03-29 01:00", "2026-03-29 04:00", "Europe/Berlin") == [
            "2026-03-29 01:30:00+01:00",
            "2026-03-29 03:30:00+02:00",
        ]

    @pytest.mark.parametrize("fields", [{"day_of_week": "sat"}, {"year": 2026, "month": 4, "day": 4}])
    def test_wildcard_hours_fire_in_both_passes_of_an_evening_that_is_shown_twice(self, fields: dict[str, Any]) -> None:
        trigger = CronTrigger(**fields, hour="*", minute=30, timezone="America/Santiago")
        assert fires_shown(trigger, "2026-04-04 22:00", "2026-04-06 00:00", "America/Santiago") == [
            "2026-04-04 22:30:00-03:00",
            "2026-04-04 23:30:00-03:00",
            "2026-04-04 23:30:00-04:00",
        ]

    def test_every_two_hours_counts_the_hours_of_the_wall_clock(self) -> None:
        trigger = CronTrigger(hour="*/2", timezone="Europe/Berlin")
        assert fires_shown(trigger, "2026-10-25 00:00", "2026-10-25 05:00", "Europe/Berlin") == [
            "2026-10-25 00:00:00+02:00",
            "2026-10-25 02:00:00+02:00",
            "2026-10-25 02:00:00+01:00",
            "2026-10-25 04:00:00+01:00",
        ]

    def test_an_interval_is_real_time_across_both_changes(self) -> None:
        trigger = IntervalTrigger(hours=1, start_date="2026-03-29 00:30:00", timezone="Europe/Berlin")
        assert fires_shown(trigger, "2026-03-29 00:00", "2026-03-29 04:00", "Europe/Berlin") == [
            "2026-03-29 00:30:00+01:00",
            "2026-03-29 01:30:00+01:00",
            "2026-03-29 03:30:00+02:00",
        ]
        assert fires_shown(trigger, "2026-10-25 01:00", "2026-10-25 04:00", "Europe/Berlin") == [
            "2026-10-25 01:30:00+02:00",
            "2026-10-25 02:30:00+02:00",
            "2026-10-25 02:30:00+01:00",
            "2026-10-25 03:30:00+01:00",
        ]

    def test_a_previous_fire_inside_the_second_pass_goes_on_to_the_next_day(self) -> None:
        trigger = CronTrigger(hour=2, minute=30, timezone="Europe/Berlin")
        inside = us("2026-10-25 02:10", "Europe/Berlin", fold=1)
        assert shown(trigger.next_fire(inside, inside), "Europe/Berlin") == "2026-10-26 02:30:00+01:00"


VECTORS = [
    pytest.param(
        "Pacific/Chatham", time(3, 50), "2026-09-26 00:00", "2026-09-28 00:00",
        ["2026-09-26 03:50:00+12:45", "2026-09-27 03:50:00+13:45"],
        id="Chatham-forward-just-after-the-gap",
    ),
    pytest.param(
        "Pacific/Chatham", time(3, 50), "2026-04-04 00:00", "2026-04-06 00:00",
        ["2026-04-04 03:50:00+13:45", "2026-04-05 03:50:00+12:45"],
        id="Chatham-back-just-after-the-overlap",
    ),
    pytest.param(
        "Pacific/Chatham", time(3, 0), "2026-09-26 00:00", "2026-09-28 00:00",
        ["2026-09-26 03:00:00+12:45", "2026-09-27 03:45:00+13:45"],
        id="Chatham-inside-the-gap",
    ),
    pytest.param(
        "Antarctica/Troll", time(23, 0), "2026-10-24 00:00", "2026-10-26 00:00",
        ["2026-10-24 23:00:00+02:00", "2026-10-25 23:00:00+00:00"],
        id="Troll-two-hours",
    ),
    pytest.param(
        "Antarctica/Troll", time(2, 30), "2026-03-29 00:00", "2026-03-30 00:00",
        ["2026-03-29 03:00:00+02:00"],
        id="Troll-gap-of-two-hours",
    ),
    pytest.param(
        "Australia/Lord_Howe", time(2, 15), "2026-10-04 00:00", "2026-10-06 00:00",
        ["2026-10-04 02:30:00+11:00", "2026-10-05 02:15:00+11:00"],
        id="Lord-Howe-gap-of-half-an-hour",
    ),
    pytest.param(
        "Australia/Lord_Howe", time(1, 45), "2026-04-05 00:00", "2026-04-07 00:00",
        ["2026-04-05 01:45:00+11:00", "2026-04-06 01:45:00+10:30"],
        id="Lord-Howe-overlap-of-half-an-hour",
    ),
    pytest.param(
        "America/Santiago", time(0, 0), "2026-09-05 00:00", "2026-09-07 12:00",
        ["2026-09-05 00:00:00-04:00", "2026-09-06 01:00:00-03:00", "2026-09-07 00:00:00-03:00"],
        id="Santiago-has-no-midnight",
    ),
    pytest.param(
        "America/Santiago", time(23, 30), "2026-04-03 00:00", "2026-04-05 23:00",
        ["2026-04-03 23:30:00-03:00", "2026-04-04 23:30:00-03:00"],
        id="Santiago-has-two-evenings",
    ),
    pytest.param(
        "America/Asuncion", time(0, 0), "2023-09-30 00:00", "2023-10-02 12:00",
        ["2023-09-30 00:00:00-04:00", "2023-10-01 01:00:00-03:00", "2023-10-02 00:00:00-03:00"],
        id="Asuncion-has-no-midnight",
    ),
    pytest.param(
        "Africa/Casablanca", time(2, 30), "2026-02-14 00:00", "2026-02-16 12:00",
        ["2026-02-14 02:30:00+01:00", "2026-02-15 02:30:00+01:00", "2026-02-16 02:30:00+00:00"],
        id="Casablanca-into-Ramadan",
    ),
    pytest.param(
        "Africa/Casablanca", time(2, 30), "2026-03-21 00:00", "2026-03-23 12:00",
        ["2026-03-21 02:30:00+00:00", "2026-03-22 03:00:00+01:00", "2026-03-23 02:30:00+01:00"],
        id="Casablanca-out-of-Ramadan",
    ),
    pytest.param(
        "Pacific/Apia", time(10, 0), "2011-12-29 00:00", "2012-01-01 00:00",
        ["2011-12-29 10:00:00-10:00", "2011-12-31 00:00:00+14:00", "2011-12-31 10:00:00+14:00"],
        id="Apia-has-no-30-December-2011",
    ),
    pytest.param(
        "Pacific/Kwajalein", time(10, 0), "1993-08-20 00:00", "1993-08-23 00:00",
        ["1993-08-20 10:00:00-12:00", "1993-08-22 00:00:00+12:00", "1993-08-22 10:00:00+12:00"],
        id="Kwajalein-has-no-21-August-1993",
    ),
    pytest.param(
        "Europe/Dublin", time(1, 30), "2026-03-28 00:00", "2026-03-30 12:00",
        ["2026-03-28 01:30:00+00:00", "2026-03-29 02:00:00+01:00", "2026-03-30 01:30:00+01:00"],
        id="Dublin-gap-with-negative-DST",
    ),
    pytest.param(
        "Europe/Dublin", time(1, 30), "2026-10-24 00:00", "2026-10-26 12:00",
        ["2026-10-24 01:30:00+01:00", "2026-10-25 01:30:00+01:00", "2026-10-26 01:30:00+00:00"],
        id="Dublin-overlap-with-negative-DST",
    ),
]  # fmt: skip


class TestKnownTrickyPlaces:
    @pytest.mark.parametrize(("zone", "at", "begin", "end", "expected"), VECTORS)
    def test_cron_fires_at(self, zone: str, at: time, begin: str, end: str, expected: list[str]) -> None:
        trigger = CronTrigger(hour=at.hour, minute=at.minute, timezone=zone)
        assert fires_shown(trigger, begin, end, zone) == expected

    @pytest.mark.parametrize(("zone", "at", "begin", "end", "expected"), VECTORS)
    def test_a_calendar_interval_fires_at(self, zone: str, at: time, begin: str, end: str, expected: list[str]) -> None:
        trigger = CalendarIntervalTrigger(days=1, hour=at.hour, minute=at.minute, start_date=begin[:10], timezone=zone)
        assert fires_shown(trigger, begin, end, zone) == expected

    def test_a_day_that_never_was_keeps_the_rhythm_of_every_second_day(self) -> None:
        even = CalendarIntervalTrigger(days=2, start_date="2011-12-26", timezone="Pacific/Apia")
        odd = CalendarIntervalTrigger(days=2, start_date="2011-12-27", timezone="Pacific/Apia")
        assert fires_shown(even, "2011-12-28 00:00", "2012-01-04 00:00", "Pacific/Apia") == [
            "2011-12-28 00:00:00-10:00",
            "2011-12-31 00:00:00+14:00",
            "2012-01-01 00:00:00+14:00",
            "2012-01-03 00:00:00+14:00",
        ]
        assert fires_shown(odd, "2011-12-28 00:00", "2012-01-04 00:00", "Pacific/Apia") == [
            "2011-12-29 00:00:00-10:00",
            "2011-12-31 00:00:00+14:00",
            "2012-01-02 00:00:00+14:00",
            "2012-01-04 00:00:00+14:00",
        ]
