"""Calendar intervals: the same day of the month, the same time of day."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger as PeerTrigger
from hypothesis import assume, given
from hypothesis import strategies as st

from mainspring.triggers.calendarinterval import CalendarIntervalTrigger
from tests.triggers.oracle import DAY, shown, thoroughly, us, walk

BERLIN = ZoneInfo("Europe/Berlin")
lengths = st.fixed_dictionaries(
    {},
    optional={
        "years": st.integers(0, 5),
        "months": st.integers(0, 14),
        "weeks": st.integers(0, 5),
        "days": st.integers(0, 40),
    },
).filter(lambda length: any(length.values()))
dates = st.dates(date(1990, 1, 1), date(2060, 12, 31))


class TestFires:
    @thoroughly
    @given(lengths, dates)
    def test_are_apscheduler_s_in_utc(self, length: dict[str, int], start: date) -> None:
        options: dict[str, Any] = {**length, "hour": 3, "minute": 20, "second": 8, "start_date": start, "timezone": UTC}
        ours, peer = CalendarIntervalTrigger(**options), PeerTrigger(**options)
        now, previous = datetime(2026, 1, 1, tzinfo=UTC), None
        for _ in range(6):
            expected = peer.get_next_fire_time(previous, now)
            assert ours.get_next_fire_time(previous, now) == expected
            previous = expected

    @thoroughly
    @given(lengths, dates, st.integers(0, 12_000))
    def test_from_any_instant_are_those_of_the_series_from_the_start(
        self, length: dict[str, int], start: date, days: int
    ) -> None:
        trigger = CalendarIntervalTrigger(**length, hour=3, start_date=start, timezone=UTC)  # type: ignore[arg-type]
        instant = us(start.isoformat()) + days * DAY
        fire = us(start.isoformat()) + DAY // 8
        assume(length.get("months") or length.get("years") or days < 400 * sum(length.values()))
        while fire < instant:
            following = trigger.next_fire(fire, fire)
            assert following is not None
            fire = following
        assert trigger.first_fire(instant) == trigger.next_fire(None, instant) == fire

    def test_pass_over_months_that_lack_the_day(self) -> None:
        trigger = CalendarIntervalTrigger(months=1, start_date="2016-03-31", timezone=BERLIN)
        fires = walk(trigger, us("2016-03-01"), us("2016-12-31"))
        assert [(shown(fire, "Europe/Berlin") or "")[:10] for fire in fires] == [
            "2016-03-31",
            "2016-05-31",
            "2016-07-31",
            "2016-08-31",
            "2016-10-31",
            "2016-12-31",
        ]

    def test_on_a_leap_day_pass_over_other_years(self) -> None:
        trigger = CalendarIntervalTrigger(years=1, start_date="2024-02-29", timezone="UTC")
        assert shown(trigger.next_fire(us("2024-02-29"), 0)) == "2028-02-29 00:00:00+00:00"
        assert shown(trigger.first_fire(us("2097-01-01"))) == "2104-02-29 00:00:00+00:00"

    def test_begin_with_the_start_date_for_apscheduler_s_face_and_not_before_now_for_the_kernel(self) -> None:
        trigger = CalendarIntervalTrigger(days=2, hour=1, start_date="2016-03-31", timezone="UTC")
        now = datetime(2026, 6, 1, tzinfo=UTC)
        assert trigger.get_next_fire_time(None, now) == datetime(2016, 3, 31, 1, tzinfo=UTC)
        assert shown(trigger.next_fire(None, us("2026-06-01"))) == "2026-06-01 01:00:00+00:00"

    def test_end_on_the_end_date(self) -> None:
        trigger = CalendarIntervalTrigger(
            days=1, hour=5, start_date="2026-06-01", end_date="2026-06-03", timezone="UTC"
        )
        assert len(walk(trigger, us("2026-05-01"), us("2026-07-01"))) == 3
        assert trigger.next_fire(us("2026-06-03 05:00"), us("2026-06-03")) is None

    def test_end_with_the_calendar(self) -> None:
        trigger = CalendarIntervalTrigger(months=7, days=1, start_date="9998-06-01", timezone="America/New_York")
        fires = walk(trigger, us("9998-01-01"), us("9999-12-31"))
        assert len(fires) == 3
        assert trigger.next_fire(fires[-1], fires[-1]) is None

    @pytest.mark.parametrize("length", [{"days": 1}, {"months": 1}, {"years": 1, "months": 3}])
    def test_far_from_the_start_are_no_walk(self, length: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
        steps = 0
        real = CalendarIntervalTrigger._step

        def step(trigger: CalendarIntervalTrigger, day: date) -> date | None:
            nonlocal steps
            steps += 1
            return real(trigger, day)

        monkeypatch.setattr(CalendarIntervalTrigger, "_step", step)
        trigger = CalendarIntervalTrigger(**length, start_date="1970-01-31", timezone="UTC")  # type: ignore[arg-type]
        assert trigger.first_fire(us("9000-01-01")) is not None
        assert steps < 5

    def test_go_on_from_a_fire_that_was_moved_by_hand(self) -> None:
        trigger = CalendarIntervalTrigger(days=7, hour=9, start_date="2026-06-01", timezone="UTC")
        assert shown(trigger.next_fire(us("2026-06-03 15:12"), 0)) == "2026-06-10 09:00:00+00:00"

    def test_start_today_by_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Clock(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return datetime(2026, 6, 1, 23, 30, tzinfo=UTC).astimezone(tz)

        monkeypatch.setattr("mainspring.triggers.calendarinterval.datetime", Clock)
        assert CalendarIntervalTrigger(days=1, timezone=BERLIN).start_date == date(2026, 6, 2)

    def test_jitter_never_delays_past_the_end_date(self) -> None:
        trigger = CalendarIntervalTrigger(
            days=1,
            hour=23,
            minute=59,
            second=59,
            start_date="2026-06-01",
            end_date="2026-06-01",
            jitter=500,
            timezone="UTC",
        )
        latest = datetime(2026, 6, 2, tzinfo=UTC)
        fires = [trigger.get_next_fire_time(None, latest) for _ in range(20)]
        assert all(fire is not None and latest - timedelta(seconds=1) <= fire < latest for fire in fires)


class TestErrors:
    @pytest.mark.parametrize("length", [{}, {"days": 0}, {"days": -1}, {"months": 1, "weeks": -1}])
    def test_an_interval_is_a_day_at_least(self, length: dict[str, int]) -> None:
        with pytest.raises(ValueError, match="the interval must be a day at least; got years=0"):
            CalendarIntervalTrigger(**length, timezone="UTC")  # type: ignore[arg-type]

    def test_an_end_before_the_start_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="end_date 2016-03-03 is before start_date 2016-03-04"):
            CalendarIntervalTrigger(days=1, start_date=date(2016, 3, 4), end_date=date(2016, 3, 3), timezone="UTC")

    def test_an_hour_that_no_clock_shows_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="hour must be in"):
            CalendarIntervalTrigger(days=1, hour=24, timezone="UTC")


class TestShown:
    def test_as_apscheduler_shows_it(self) -> None:
        options: dict[str, Any] = {
            "years": 1, "months": 5, "weeks": 6, "days": 8, "hour": 3, "second": 8,
            "start_date": date(2016, 3, 5), "end_date": date(2020, 12, 25), "timezone": BERLIN,
        }  # fmt: skip
        trigger = CalendarIntervalTrigger(**options)
        assert repr(trigger) == repr(PeerTrigger(**options))
        assert str(trigger) == "calendarinterval[years=1, months=5, weeks=6, days=8, time='03:00:08']"

    def test_with_readable_attributes(self) -> None:
        trigger = CalendarIntervalTrigger(months=1, start_date=datetime(2016, 3, 5, 10), timezone=BERLIN)
        assert (trigger.years, trigger.months, trigger.weeks, trigger.days) == (0, 1, 0, 0)
        assert (trigger.start_date, trigger.end_date, trigger.timezone) == (date(2016, 3, 5), None, BERLIN)
