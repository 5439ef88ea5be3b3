"""Interval and date triggers: equal to APScheduler's, in whole microseconds."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.date import DateTrigger as PeerDate
from apscheduler.triggers.interval import IntervalTrigger as PeerInterval
from hypothesis import given
from hypothesis import strategies as st

from mainspring.triggers.date import DateTrigger
from mainspring.triggers.interval import IntervalTrigger
from mainspring.triggers.zones import MAX_INSTANT
from tests.triggers.oracle import HOUR, SECOND, shown, thoroughly, us

BERLIN = ZoneInfo("Europe/Berlin")
START = datetime(2026, 6, 1, tzinfo=UTC)


class TestInterval:
    @thoroughly
    @given(
        st.integers(1, 10**6),
        st.integers(-(10**8), 10**8),
        st.booleans(),
        st.one_of(st.none(), st.integers(0, 10**8)),
    )
    def test_the_fires_are_apscheduler_s(self, seconds: int, now: int, went: bool, end: int | None) -> None:
        options: dict[str, Any] = {"seconds": seconds, "start_date": START, "timezone": UTC}
        if end is not None:
            options["end_date"] = START + timedelta(seconds=end)
        ours, peer = IntervalTrigger(**options), PeerInterval(**options)
        moment = START + timedelta(seconds=now)
        previous = moment if went else None
        assert ours.get_next_fire_time(previous, moment) == peer.get_next_fire_time(previous, moment)

    @thoroughly
    @given(st.integers(1, 10**7), st.integers(-(10**9), 10**9))
    def test_the_first_fire_is_the_first_of_the_grid_that_is_not_past(self, interval: int, now: int) -> None:
        trigger = IntervalTrigger(seconds=interval / SECOND, start_date=START)
        fire = trigger.next_fire(None, us("2026-06-01") + now)
        assert fire is not None
        steps, off = divmod(fire - us("2026-06-01"), interval)
        assert (off, steps >= 0) == (0, True)
        assert fire >= us("2026-06-01") + now
        assert steps == 0 or fire - interval < us("2026-06-01") + now

    def test_a_thousand_years_do_not_drift(self) -> None:
        trigger = IntervalTrigger(seconds=0.1, start_date=START)
        late = us("2026-06-01") + 1000 * 365 * 24 * HOUR
        assert trigger.next_fire(None, late) == late
        assert trigger.next_fire(None, late + 1) == late + SECOND // 10

    def test_without_a_start_the_first_fire_is_one_interval_from_now(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mainspring.triggers.interval.time_ns", lambda: us("2026-06-01") * 1000)
        assert IntervalTrigger(minutes=5, timezone=BERLIN).start_date == START + timedelta(minutes=5)

    def test_all_zero_is_one_second(self) -> None:
        assert IntervalTrigger(timezone="UTC").interval == timedelta(seconds=1)

    @pytest.mark.parametrize("length", [{"seconds": -5}, {"hours": 1, "minutes": -61}, {"seconds": 1e-9}])
    def test_less_than_a_microsecond_is_an_error(self, length: dict[str, float]) -> None:
        with pytest.raises(ValueError, match="the interval must be a microsecond at least"):
            IntervalTrigger(**length, timezone="UTC")  # type: ignore[arg-type]

    def test_a_length_that_is_no_number_is_a_type_error(self) -> None:
        with pytest.raises(TypeError):
            IntervalTrigger("1-6", timezone="UTC")  # type: ignore[arg-type]

    def test_an_end_before_the_start_is_an_error(self) -> None:
        with pytest.raises(ValueError, match=r"IntervalTrigger: end_date .* is before start_date"):
            IntervalTrigger(hours=1, start_date=START, end_date=START - timedelta(1))

    def test_an_end_in_the_past_without_a_start_never_fires(self) -> None:
        trigger = IntervalTrigger(hours=1, end_date=datetime(2017, 1, 1, tzinfo=UTC))
        assert trigger.next_fire(None, us("2016-12-31")) is None

    def test_it_stops_at_the_end_of_the_calendar(self) -> None:
        assert IntervalTrigger(weeks=1, start_date=START).next_fire(MAX_INSTANT - 5, MAX_INSTANT) is None

    def test_attributes_stay_readable(self) -> None:
        trigger = IntervalTrigger(
            weeks=2, days=6, minutes=13, seconds=2, start_date=date(2016, 4, 3), end_date="2030-01-01", timezone=BERLIN,
            jitter=12,
        )  # fmt: skip
        assert trigger.interval == timedelta(days=20, minutes=13, seconds=2)
        assert trigger.interval_length == trigger.interval.total_seconds()
        assert trigger.start_date == datetime(2016, 4, 3, tzinfo=BERLIN)
        assert trigger.end_date == datetime(2030, 1, 1, tzinfo=BERLIN)
        assert trigger.timezone is BERLIN
        assert trigger.jitter == 12

    def test_is_shown_as_apscheduler_shows_it(self) -> None:
        options: dict[str, Any] = {
            "minutes": 1,
            "start_date": START,
            "end_date": START,
            "jitter": 3,
            "timezone": BERLIN,
        }
        ours, peer = IntervalTrigger(**options), PeerInterval(**options)
        assert str(ours) == str(peer) == "interval[0:01:00]"
        assert repr(ours) == repr(peer).replace(
            "2026-06-01 00:00:00 UTC", "2026-06-01 02:00:00 CEST"
        )  # ours shows its dates in its own zone

    def test_jitter_never_delays_past_the_end(self) -> None:
        trigger = IntervalTrigger(seconds=5, start_date=START, end_date=START + timedelta(seconds=5), jitter=9)
        fires = {trigger.get_next_fire_time(START, START) for _ in range(20)}
        assert fires == {START + timedelta(seconds=5)}


class TestDate:
    @pytest.mark.parametrize("run_date", ["2009-7-6", "2009-07-06 00:00:00", date(2009, 7, 6), datetime(2009, 7, 6)])
    @pytest.mark.parametrize("now", [datetime(2008, 5, 4), datetime(2009, 7, 6), datetime(2009, 9, 2)])
    def test_the_fire_is_apscheduler_s(self, run_date: Any, now: datetime) -> None:
        ours, peer = (kind(run_date, BERLIN) for kind in (DateTrigger, PeerDate))
        moment = now.replace(tzinfo=BERLIN)
        assert ours.get_next_fire_time(None, moment) == peer.get_next_fire_time(None, moment)
        assert ours.get_next_fire_time(moment, moment) is None
        assert (str(ours), repr(ours)) == (str(peer), repr(peer))

    def test_an_aware_date_keeps_its_zone(self) -> None:
        when = datetime(2026, 6, 1, 12, tzinfo=ZoneInfo("Asia/Tokyo"))
        trigger = DateTrigger(when, timezone=BERLIN)
        assert str(trigger.run_date) == "2026-06-01 12:00:00+09:00"
        assert trigger.timezone == ZoneInfo("Asia/Tokyo")

    def test_without_a_date_it_fires_now(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Clock(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return START.astimezone(tz)

        monkeypatch.setattr("mainspring.triggers.date.datetime", Clock)
        assert DateTrigger(timezone="UTC").run_date == START

    @pytest.mark.parametrize(
        ("text", "fold", "expected"),
        [
            ("2026-03-29 02:30:00", 0, "2026-03-29 03:00:00+02:00"),
            ("2026-10-25 02:30:00", 0, "2026-10-25 02:30:00+02:00"),
            ("2026-10-25 02:30:00", 1, "2026-10-25 02:30:00+01:00"),
        ],
    )
    def test_a_naive_date_follows_the_rule(self, text: str, fold: int, expected: str) -> None:
        trigger = DateTrigger(datetime.fromisoformat(text).replace(fold=fold), BERLIN)
        assert shown(trigger.next_fire(None, 0), "Europe/Berlin") == expected

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("2009-8-1T5:16:12Z", "2009-08-01 05:16:12+00:00"),
            ("2009-8-1T5:16:12+02:30", "2009-08-01 02:46:12+00:00"),
            ("2009-08-01T05:16", "2009-08-01 03:16:00+00:00"),
            ("2009-08-01 05:16:12.5", "2009-08-01 03:16:12.500000+00:00"),
            ("2009-8-1 5:16:12.25", "2009-08-01 03:16:12.250000+00:00"),
        ],
    )
    def test_a_text_is_a_date_and_time(self, text: str, expected: str) -> None:
        assert shown(DateTrigger(text, BERLIN).next_fire(None, 0)) == expected

    def test_overdue_is_itself(self) -> None:
        trigger = DateTrigger(START)
        fire = us("2026-06-01")
        assert trigger.overdue(fire, fire, 5) == (1, [fire])
        assert trigger.overdue(fire, fire - 1, 5) == (0, [])
        assert (trigger.first_fire(fire), trigger.first_fire(fire + 1)) == (fire, None)
