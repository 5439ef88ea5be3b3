"""The next fire of a cron trigger: equal to APScheduler's where it is right, and right where nobody else is."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.cron import CronTrigger as PeerTrigger
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.cron.schedule import compile_schedule
from mainspring.triggers.zones import MAX_INSTANT
from tests.triggers.oracle import DAY, SECOND, fires_shown, shown, thoroughly, us, walk


def numbers(low: int, high: int) -> st.SearchStrategy[str]:
    """Make texts of one field, of every form."""
    value = st.integers(low, high)
    pair = st.tuples(value, value).map(sorted)
    return st.one_of(
        st.just("*"),
        value.map(str),
        st.integers(1, high - low).map(lambda step: f"*/{step}"),
        pair.map(lambda ends: f"{ends[0]}-{ends[1]}"),
        st.tuples(pair, st.integers(1, 5))
        .filter(lambda drawn: drawn[1] <= drawn[0][1] - drawn[0][0])
        .map(lambda drawn: f"{drawn[0][0]}-{drawn[0][1]}/{drawn[1]}"),
        st.lists(value, min_size=2, max_size=4).map(lambda values: ",".join(map(str, values))),
    )


days = st.one_of(
    numbers(1, 31), st.sampled_from(["last", "1st mon", "3rd fri", "5th wed", "last sun", "2nd tue,last,4"])
)
weekdays = st.one_of(numbers(0, 6), st.sampled_from(["mon-fri", "sat,sun", "wed"]))
expressions = st.fixed_dictionaries(
    {},
    optional={
        "year": st.sampled_from(["2024-2030", "*/3", "2027,2031", "2020/4"]),
        "month": st.one_of(numbers(1, 12), st.sampled_from(["jan-mar,sep", "feb"])),
        "day": days,
        "week": numbers(1, 53),
        "day_of_week": weekdays,
        "hour": numbers(0, 23),
        "minute": numbers(0, 59),
        "second": numbers(0, 59),
    },
)
moments = st.datetimes(datetime(2020, 1, 1), datetime(2032, 1, 1))


def assert_same_fires(fields: dict[str, str], start: datetime, steps: int) -> None:
    # The end keeps the peer from scanning eight thousand years for a date that never comes.
    options: dict[str, Any] = {**fields, "end_date": start + timedelta(days=900), "timezone": start.tzinfo}
    ours, peer = CronTrigger(**options), PeerTrigger(**options)
    previous, now = None, start
    for _ in range(steps):
        expected = peer.get_next_fire_time(previous, now)
        assert ours.get_next_fire_time(previous, now) == expected
        if expected is None:
            break
        previous = now = expected


class TestAgainstAPScheduler:
    @settings(max_examples=4 * settings().max_examples)
    @given(expressions, moments)
    def test_the_fires_are_equal_in_utc(self, fields: dict[str, str], moment: datetime) -> None:
        assert_same_fires(fields, moment.replace(tzinfo=UTC), 5)

    @thoroughly
    @given(expressions, moments, st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Kolkata"]))
    def test_the_fires_are_equal_in_any_zone_away_from_a_change(
        self, fields: dict[str, str], moment: datetime, zone: str
    ) -> None:
        start = moment.replace(tzinfo=ZoneInfo(zone))
        fire = CronTrigger(**fields, timezone=zone).get_next_fire_time(None, start)  # type: ignore[arg-type]
        assume(fire is not None)
        assert fire is not None
        around = [fire + timedelta(days=days) for days in (-2, -1, 0, 1)]
        assume(len({when.utcoffset() for when in [start, *around]}) == 1)
        assume(fire - start < timedelta(days=30))
        assert_same_fires(fields, start, 1)

    @pytest.mark.parametrize("hours", [-30, -1, 0, 1, 30])
    def test_a_now_before_the_previous_fire_begins_the_search_again(self, hours: int) -> None:
        previous = datetime(2015, 11, 23, tzinfo=UTC)
        now = previous + timedelta(hours=hours)
        ours, peer = (kind(day="*", timezone=UTC) for kind in (CronTrigger, PeerTrigger))
        assert ours.get_next_fire_time(previous, now) == peer.get_next_fire_time(previous, now)

    def test_the_kernel_always_goes_on_from_the_previous_fire(self) -> None:
        trigger = CronTrigger(hour=0, timezone="UTC")
        previous = us("2026-06-05")
        assert trigger.next_fire(previous, previous - 3 * DAY) == previous + DAY

    def test_a_fire_time_is_in_the_zone_of_the_trigger(self) -> None:
        trigger = CronTrigger(hour=11, minute="*/5", timezone="UTC-05:00")
        now = datetime(2009, 9, 26, 10, 16, tzinfo=ZoneInfo("Etc/GMT+6"))
        assert str(trigger.get_next_fire_time(None, now)) == "2009-09-26 11:20:00-05:00"


class TestDates:
    @pytest.mark.parametrize(
        ("fields", "begin", "expected"),
        [
            ({"month": 2, "day": 29}, "2026-01-01", ["2028-02-29", "2032-02-29", "2036-02-29"]),
            ({"month": 2, "day": 29}, "2096-03-01", ["2104-02-29", "2108-02-29"]),
            ({"month": 2, "day": 29, "day_of_week": "sun"}, "2026-01-01", ["2032-02-29", "2060-02-29", "2088-02-29"]),
            ({"month": 2, "day": "last"}, "2027-01-01", ["2027-02-28", "2028-02-29"]),
            ({"day": 31}, "2026-01-31", ["2026-01-31", "2026-03-31", "2026-05-31", "2026-07-31"]),
            ({"month": "dec,jan", "day": "31,1"}, "2026-12-30", ["2026-12-31", "2027-01-01", "2027-01-31"]),
            ({"day": "5th fri"}, "2026-01-01", ["2026-01-30", "2026-05-29", "2026-07-31", "2026-10-30"]),
            ({"day": "last mon"}, "2026-02-01", ["2026-02-23", "2026-03-30", "2026-04-27"]),
            ({"day": "1st sun,3rd wed"}, "2026-03-01", ["2026-03-01", "2026-03-18", "2026-04-05"]),
            ({"week": 53, "day_of_week": "mon"}, "2020-01-01", ["2020-12-28", "2026-12-28", "2032-12-27"]),
            ({"week": 53, "day_of_week": "fri"}, "2020-01-01", ["2021-01-01", "2027-01-01", "2032-12-31"]),
            ({"week": 1, "day_of_week": "mon"}, "2024-06-01", ["2024-12-30", "2025-12-29", "2027-01-04"]),
            ({"year": 2038, "month": 1, "day": 19, "hour": 3, "minute": 14}, "2026-01-01", ["2038-01-19"]),
            ({"month": 1, "day": 19}, "2037-06-01", ["2038-01-19", "2039-01-19"]),
        ],
    )  # fmt: skip
    def test_fall_where_the_calendar_has_them(self, fields: dict[str, Any], begin: str, expected: list[str]) -> None:
        trigger = CronTrigger(**fields, timezone="UTC")
        fire: int | None = us(begin) - 1
        for day in expected:
            assert fire is not None
            fire = trigger.next_fire(fire, fire)
            assert (shown(fire) or "")[:10] == day

    def test_match_a_scan_of_every_day_for_400_years_of_leap_days_and_weeks(self) -> None:
        schedule = compile_schedule((None, "2,12,1", "1-4,28-31,2nd thu", "1,5,9,53", "mon-thu,sun", "0", None, None))
        weeks, begin = {1, 5, 9, 53}, date(1970, 1, 1)
        for year in range(1970, 2371):
            expected = 0
            for month in 1, 2, 12:
                for number in range(1, 32):
                    try:
                        day = date(year, month, number)
                    except ValueError:
                        continue
                    second_thursday = day.weekday() == 3 and 8 <= number <= 14
                    in_day = number <= 4 or number >= 28 or second_thursday
                    if in_day and day.isocalendar()[1] in weeks and day.weekday() not in (4, 5):
                        expected += 1
                        assert schedule.next_wall((day - begin).days * 86_400) == (day - begin).days * 86_400
            new_year = (date(year, 1, 1) - begin).days * 86_400
            assert schedule.count(new_year, (date(year + 1, 1, 1) - begin).days * 86_400) == expected


class TestLimits:
    @pytest.mark.parametrize(
        "fields",
        [
            {"month": 2, "day": 30},
            {"month": "4,6,9,11", "day": 31},
            {"year": "2025/4", "month": 2, "day": 29},
            {"year": 2020},
            {"month": 1, "week": 30},
            {"day": "5th mon", "month": 2, "year": "1971/4"},
            {"day": "1-7", "month": 12, "week": 1},
        ],
    )
    def test_an_impossible_date_has_no_next_fire(self, fields: dict[str, Any]) -> None:
        trigger = CronTrigger(**fields, timezone="Europe/Berlin")
        assert trigger.next_fire(None, us("2026-01-01")) is None
        assert trigger.get_next_fire_time(None, datetime(2026, 1, 1, tzinfo=UTC)) is None

    def test_an_impossible_date_is_known_without_a_search(self, monkeypatch: pytest.MonkeyPatch) -> None:
        trigger = CronTrigger(month=2, day=30, timezone="UTC")
        calendar = trigger._schedule.calendar
        assert calendar.years() == 0
        monkeypatch.setattr(type(calendar), "_fill", lambda *_: pytest.fail("looked at another year"))
        assert trigger.next_fire(None, us("2026-01-01")) is None

    @pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/New_York"])
    @pytest.mark.parametrize("hour", ["*", "0", "23"])
    def test_after_the_year_9999_there_is_nothing(self, zone: str, hour: str) -> None:
        trigger = CronTrigger(hour=hour, timezone=zone)
        fires = walk(trigger, us("9999-12-29"), MAX_INSTANT)
        assert fires
        assert trigger.next_fire(fires[-1], fires[-1]) is None
        assert trigger.next_fire(MAX_INSTANT, MAX_INSTANT) is None
        last = trigger.get_next_fire_time(None, datetime(9999, 12, 29, tzinfo=UTC))
        assert last is not None
        assert last.year == 9999

    def test_nothing_fires_before_1970(self) -> None:
        trigger = CronTrigger(hour=0, timezone="UTC")
        assert trigger.next_fire(None, us("1950-06-01")) == 0

    def test_nothing_fires_before_the_start_or_after_the_end(self) -> None:
        trigger = CronTrigger(
            hour="*/6", start_date="2026-06-01 06:00:00", end_date="2026-06-01 18:00:00", timezone="UTC"
        )
        assert fires_shown(trigger, "2026-05-01", "2026-07-01", "UTC") == [
            "2026-06-01 06:00:00+00:00",
            "2026-06-01 12:00:00+00:00",
            "2026-06-01 18:00:00+00:00",
        ]

    def test_a_previous_fire_before_the_start_does_not_go_around_it(self) -> None:
        trigger = CronTrigger(hour=0, start_date="2026-06-01", timezone="UTC")
        assert trigger.next_fire(us("2026-01-01"), us("2026-01-02")) == us("2026-06-01")

    def test_fractions_of_a_second_round_up(self) -> None:
        trigger = CronTrigger(second="*", timezone="UTC")
        assert trigger.next_fire(None, 5 * SECOND + 1) == 6 * SECOND
        assert trigger.next_fire(None, 5 * SECOND) == 5 * SECOND
        assert trigger.next_fire(5 * SECOND, 5 * SECOND) == 6 * SECOND


class TestJitter:
    def test_delays_by_up_to_its_seconds(self) -> None:
        trigger = CronTrigger(minute="*", jitter=5, timezone="UTC")
        now = datetime(2017, 11, 12, 6, 55, 30, tzinfo=UTC)
        fires = {trigger.get_next_fire_time(None, now) for _ in range(100)}
        assert len(fires) > 1
        assert all(fire is not None and timedelta(seconds=30) <= fire - now <= timedelta(seconds=35) for fire in fires)

    def test_never_delays_past_the_end(self) -> None:
        end = datetime(2017, 11, 12, 6, 56, tzinfo=UTC)
        trigger = CronTrigger(minute="*", jitter=5, end_date=end)
        now = datetime(2017, 11, 12, 6, 55, 30, tzinfo=UTC)
        assert {trigger.get_next_fire_time(None, now) for _ in range(20)} == {end}

    def test_is_no_part_of_the_kernel_s_fires(self) -> None:
        trigger = CronTrigger(minute="*", jitter=5, timezone="UTC")
        assert {trigger.next_fire(None, us("2026-06-01 00:00:30")) for _ in range(20)} == {us("2026-06-01 00:01")}
