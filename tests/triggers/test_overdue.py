"""Overdue fires: how many, and which are the latest, without walking through them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.calendarinterval import CalendarIntervalTrigger
from mainspring.triggers.combining import AndTrigger, OrTrigger
from mainspring.triggers.cron import CronTrigger, search
from mainspring.triggers.interval import IntervalTrigger
from tests.triggers.oracle import DAY, HOUR, MINUTE, SECOND, thoroughly, us, walk
from tests.triggers.test_cron_next import expressions

JUNE = us("2026-06-01")
TEN_YEARS = us("2036-06-01") - JUNE


class Every(BaseTrigger):
    """A user's trigger: only APScheduler's method, every so many seconds, counting how often it is asked."""

    def __init__(self, seconds: int = 1, quiet: tuple[datetime, datetime] | None = None) -> None:
        self.seconds, self.quiet, self.asked = seconds, quiet, 0

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        self.asked += 1
        seconds = previous_fire_time.timestamp() + 1 if previous_fire_time else now.timestamp()
        fire = datetime.fromtimestamp(-(-seconds // self.seconds) * self.seconds, UTC)
        if self.quiet and self.quiet[0] <= fire < self.quiet[1]:
            return self.quiet[1]
        return fire


class Stubborn(BaseTrigger):
    """A user's trigger that never looks at `now`."""

    asked = 0

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        self.asked += 1
        return (previous_fire_time or datetime(2026, 6, 1, tzinfo=UTC)) + timedelta(seconds=1)


def assert_as_walked(trigger: BaseTrigger, first: int, until: int, limit: int) -> None:
    fires = walk(trigger, first, until)
    assert fires[0] == first
    assert trigger.overdue(first, until, limit) == (len(fires), fires[-limit:])


class TestInterval:
    @thoroughly
    @given(
        st.integers(1, 10**9), st.integers(0, 10**9), st.integers(1, 20), st.one_of(st.none(), st.integers(0, 10**9))
    )
    def test_is_as_walked(self, interval: int, span: int, limit: int, end: int | None) -> None:
        interval = max(interval, span // 500)
        start = datetime(2026, 6, 1, tzinfo=UTC)
        end_date = None if end is None else start + timedelta(microseconds=end)
        trigger = IntervalTrigger(seconds=interval / SECOND, start_date=start, end_date=end_date)
        assert_as_walked(trigger, JUNE, JUNE + span, limit)

    def test_of_a_first_that_is_off_the_grid_goes_on_from_it(self) -> None:
        trigger = IntervalTrigger(minutes=5, start_date=datetime(2026, 6, 1, tzinfo=UTC))
        assert trigger.overdue(JUNE + 7, JUNE + 12 * MINUTE, 9) == (
            3,
            [JUNE + 7, JUNE + 5 * MINUTE + 7, JUNE + 10 * MINUTE + 7],
        )

    def test_before_the_first_there_is_nothing(self) -> None:
        assert IntervalTrigger(minutes=5, timezone="UTC").overdue(JUNE, JUNE - 1, 9) == (0, [])

    def test_ten_million_fires_are_one_division(self) -> None:
        trigger = IntervalTrigger(seconds=1, start_date=datetime(2026, 6, 1, tzinfo=UTC))
        count, fires = trigger.overdue(JUNE, JUNE + TEN_YEARS, 2)
        assert count == TEN_YEARS // SECOND + 1
        assert fires == [JUNE + TEN_YEARS - SECOND, JUNE + TEN_YEARS]


class TestCron:
    @thoroughly
    @given(
        expressions,
        st.sampled_from(["UTC", "Europe/Berlin", "America/Santiago", "Australia/Lord_Howe"]),
        st.integers(0, 9000),
        st.sampled_from([MINUTE, HOUR, 9 * DAY, 400 * DAY]),
        st.integers(1, 12),
    )
    def test_is_as_walked(self, fields: dict[str, Any], zone: str, hours: int, span: int, limit: int) -> None:
        trigger = CronTrigger(**fields, timezone=zone)
        first = trigger.next_fire(None, us("2025-06-01") + hours * HOUR)
        if first is None:
            return
        fire, until = first, first
        for _ in range(300):
            following = trigger.next_fire(fire, fire)
            if following is None or following > first + span:
                break
            fire = until = following
        assert_as_walked(trigger, first, until, limit)

    @pytest.mark.parametrize("hour", ["*", "0-23"])
    @pytest.mark.parametrize("zone", ["Europe/Berlin", "Pacific/Apia"])
    def test_counts_a_year_with_its_changes(self, hour: str, zone: str) -> None:
        trigger = CronTrigger(hour=hour, minute="*/10", timezone=zone)
        assert_as_walked(trigger, us("2011-01-01"), us("2012-01-05"), 100)

    def test_keeps_to_start_and_end(self) -> None:
        trigger = CronTrigger(hour="*", start_date="2026-06-01", end_date="2026-06-03", timezone="UTC")
        assert trigger.overdue(JUNE, JUNE + 9 * DAY, 2) == (49, [JUNE + 47 * HOUR, JUNE + 48 * HOUR])

    def test_a_first_that_is_off_the_schedule_counts(self) -> None:
        trigger = CronTrigger(hour="*", timezone="UTC")
        assert trigger.overdue(JUNE + 7, JUNE + HOUR, 9) == (2, [JUNE + 7, JUNE + HOUR])
        assert trigger.overdue(JUNE + 7, JUNE + 8, 9) == (1, [JUNE + 7])
        assert trigger.overdue(JUNE + 7, JUNE, 9) == (0, [])

    @pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
    @pytest.mark.parametrize("limit", [1, 100])
    def test_ten_years_of_seconds_are_a_few_looks(self, zone: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = {"next": 0, "count": 0}
        real_next, real_count = search.next_instant, search.count_fires

        def next_instant(*args: Any) -> int | None:
            calls["next"] += 1
            return real_next(*args)

        def count_fires(*args: Any) -> int:
            calls["count"] += 1
            return real_count(*args)

        monkeypatch.setattr(search, "next_instant", next_instant)
        monkeypatch.setattr(search, "count_fires", count_fires)
        trigger = CronTrigger(second="*", timezone=zone)
        count, fires = trigger.overdue(JUNE, JUNE + TEN_YEARS, limit)
        assert count == TEN_YEARS // SECOND + 1
        assert fires == [JUNE + TEN_YEARS - step * SECOND for step in range(limit - 1, -1, -1)]
        assert calls["next"] <= limit + 66
        assert calls["count"] <= 100

    def test_a_burst_of_long_ago_is_found_without_a_walk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = 0
        real = search.next_instant

        def next_instant(*args: Any) -> int | None:
            nonlocal asked
            asked += 1
            return real(*args)

        monkeypatch.setattr(search, "next_instant", next_instant)
        trigger = CronTrigger(year=2026, second="*", timezone="UTC")
        count, fires = trigger.overdue(JUNE, JUNE + TEN_YEARS, 3)
        assert count == (us("2027-01-01") - JUNE) // SECOND
        assert fires == [us("2026-12-31 23:59:57"), us("2026-12-31 23:59:58"), us("2026-12-31 23:59:59")]
        assert asked < 100


class TestCombined:
    @pytest.mark.parametrize("limit", [1, 5, 1000])
    def test_is_as_walked(self, limit: int) -> None:
        def cron(**fields: str) -> CronTrigger:
            return CronTrigger(**fields, timezone="Europe/Berlin")  # type: ignore[arg-type]

        either = OrTrigger([cron(hour="*/4"), cron(hour="2", minute="30"), cron(day="1", hour="4")])
        both = AndTrigger([cron(hour="*/4"), cron(day_of_week="mon-thu", hour="*")])
        for trigger in either, both:
            first = trigger.next_fire(None, us("2026-03-20"))
            assert first is not None
            assert_as_walked(trigger, first, us("2026-11-02"), limit)

    def test_one_with_a_calendar_interval_is_as_walked(self) -> None:
        daily = CalendarIntervalTrigger(days=1, hour=2, start_date="2026-01-01", timezone="Europe/Berlin")
        weekly = CalendarIntervalTrigger(weeks=1, hour=7, start_date="2026-01-01", timezone="Europe/Berlin")
        trigger = OrTrigger([daily, weekly])
        assert_as_walked(trigger, us("2026-01-01 01:00"), us("2027-01-02"), 7)


class TestOfAUser:
    def test_is_as_walked_while_there_are_few(self) -> None:
        trigger = Every(60)
        assert_as_walked(trigger, JUNE, JUNE + 10 * HOUR, 10)

    @pytest.mark.parametrize("limit", [1, 100])
    def test_ten_years_of_seconds_are_ten_thousand_steps(self, limit: int) -> None:
        trigger = Every(1)
        count, fires = trigger.overdue(JUNE, JUNE + TEN_YEARS, limit)
        assert fires == [JUNE + TEN_YEARS - step * SECOND for step in range(limit - 1, -1, -1)]
        assert 5000 <= count <= TEN_YEARS // SECOND + 1
        assert trigger.asked <= 10_100

    def test_the_latest_are_found_behind_a_long_silence(self) -> None:
        silence = datetime(2030, 6, 1, tzinfo=UTC), datetime(2036, 5, 31, 23, 59, 58, tzinfo=UTC)
        trigger = Every(1, quiet=silence)
        _, fires = trigger.overdue(JUNE, JUNE + TEN_YEARS, 5)
        assert fires == [
            us("2030-05-31 23:59:58"),
            us("2030-05-31 23:59:59"),
            us("2036-05-31 23:59:58"),
            us("2036-05-31 23:59:59"),
            us("2036-06-01"),
        ]
        assert trigger.asked <= 10_100

    def test_one_that_ignores_now_is_counted_as_far_as_it_was_walked(self) -> None:
        trigger = Stubborn()
        count, fires = trigger.overdue(JUNE, JUNE + TEN_YEARS, 2)
        assert (count, fires) == (5000, [JUNE + 4998 * SECOND, JUNE + 4999 * SECOND])
        assert trigger.asked <= 10_100

    def test_one_that_does_not_move_is_counted_once(self) -> None:
        class Stuck(BaseTrigger):
            def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
                return datetime(2026, 6, 1, tzinfo=UTC)

        assert Stuck().overdue(JUNE, JUNE + DAY, 9) == (1, [JUNE])
