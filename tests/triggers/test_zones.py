"""Time zones as segments of constant offset, whoever made the tzinfo."""

from __future__ import annotations

import io
import struct
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
import pytz
from dateutil import tz as dateutil_tz

from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.interval import IntervalTrigger
from mainspring.triggers.zones import MAX_INSTANT, MIN_INSTANT, Zone, astimezone, zone_of
from tests.triggers.oracle import DAY, HOUR, SECOND, fires_shown, shown, transitions, us, walk

BERLIN = zone_of(ZoneInfo("Europe/Berlin"))


def wall(text: str) -> int:
    return us(text)


class TestSegments:
    def test_a_segment_ends_at_the_second_of_the_change(self) -> None:
        segment = BERLIN.segment(us("2026-02-01"))
        assert shown(segment.end) == "2026-03-29 01:00:00+00:00"
        assert segment.offset == HOUR
        assert BERLIN.segment(segment.end).offset == 2 * HOUR
        assert BERLIN.segment(segment.end).start == segment.end

    def test_a_segment_knows_the_latest_wall_shown_before_it(self) -> None:
        winter = BERLIN.segment(us("2026-10-25 01:00"))
        assert winter.start + winter.offset == wall("2026-10-25 02:00")
        assert winter.high == wall("2026-10-25 03:00") - 1

    def test_every_change_of_2020_to_2040_is_found(self) -> None:
        for zone, change in transitions():
            segment = zone_of(ZoneInfo(zone)).segment(change)
            assert segment.start == change
            assert segment.offset != zone_of(ZoneInfo(zone)).segment(change - 1).offset

    def test_a_fixed_offset_has_one_segment(self) -> None:
        zone = zone_of(timezone(timedelta(hours=5, minutes=30)))
        assert zone.segment(MIN_INSTANT) is zone.segment(MAX_INSTANT)
        assert zone.wall(0) == 5 * HOUR + HOUR // 2

    @pytest.mark.parametrize("name", ["Pacific/Kiritimati", "Pacific/Niue", "America/New_York"])
    def test_the_ends_of_the_calendar_are_no_error(self, name: str) -> None:
        zone = zone_of(ZoneInfo(name))
        assert zone.segment(MAX_INSTANT).offset == zone.segment(MAX_INSTANT - 3 * DAY).offset
        assert zone.segment(MIN_INSTANT).offset == zone.segment(MIN_INSTANT + 3 * DAY).offset

    def test_what_is_kept_does_not_pile_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mainspring.triggers.zones._BLOCKS_CACHED", 16)
        zone = Zone(ZoneInfo("Europe/Berlin"))
        for year in range(100):
            zone.segment(year * 370 * DAY)
            assert len(zone._blocks) <= 16


class TestTheInstantOfAWall:
    @pytest.mark.parametrize(
        ("text", "instant"),
        [
            ("2026-03-29 01:59:59", "2026-03-29 00:59:59+00:00"),
            ("2026-03-29 02:00:00", "2026-03-29 01:00:00+00:00"),
            ("2026-03-29 02:59:59", "2026-03-29 01:00:00+00:00"),
            ("2026-03-29 03:00:00", "2026-03-29 01:00:00+00:00"),
            ("2026-03-29 03:00:01", "2026-03-29 01:00:01+00:00"),
            ("2026-10-25 01:59:59", "2026-10-24 23:59:59+00:00"),
            ("2026-10-25 02:30:00", "2026-10-25 00:30:00+00:00"),
            ("2026-10-25 03:00:00", "2026-10-25 02:00:00+00:00"),
        ],
    )
    def test_is_the_first_at_which_the_clock_shows_it_or_later(self, text: str, instant: str) -> None:
        assert shown(BERLIN.instant(wall(text))) == instant

    def test_never_goes_back_while_walls_go_on(self) -> None:
        for name in "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "America/Santiago":
            zone = zone_of(ZoneInfo(name))
            begin = wall("2011-12-20")
            instants = [zone.instant(begin + minutes * 600 * SECOND) for minutes in range(20_000)]
            assert instants == sorted(instants)

    def test_of_a_day_that_was_shown_twice_is_in_its_first_pass(self) -> None:
        # Kwajalein crossed the date line on 1 October 1969: its clocks went back by 23 hours.
        zone = zone_of(ZoneInfo("Pacific/Kwajalein"))
        twice = wall("1969-09-30 12:00")
        assert zone.second_pass(twice) - zone.instant(twice) == 23 * HOUR
        assert zone.wall(zone.instant(twice)) == zone.wall(zone.second_pass(twice)) == twice

    def test_a_wall_shown_once_has_no_second_pass(self) -> None:
        assert BERLIN.second_pass(wall("2026-06-01 12:00")) == BERLIN.instant(wall("2026-06-01 12:00"))


class TestNames:
    def test_utc_is_the_standard_library_s(self) -> None:
        assert astimezone("UTC") is UTC

    def test_none_stays_none(self) -> None:
        assert astimezone(None) is None

    @pytest.mark.parametrize(
        ("text", "offset"),
        [("UTC+05:30", 19_800), ("+05:30", 19_800), ("-03:00", -10_800), ("UTC-00:25:21", -1521)],
    )
    def test_an_offset_is_a_name(self, text: str, offset: int) -> None:
        assert astimezone(text) == timezone(timedelta(seconds=offset))

    @pytest.mark.parametrize(
        ("wrong", "right"),
        [
            ("Europe/Berln", "Europe/Berlin"),
            ("europe/berlin", "Europe/Berlin"),
            ("Berlin", "Europe/Berlin"),
            ("New York", "America/New_York"),
        ],
    )
    def test_an_unknown_name_is_an_error_that_names_near_ones(self, wrong: str, right: str) -> None:
        with pytest.raises(ValueError, match=f"no time zone is called '{wrong}'; did you mean '{right}'"):
            CronTrigger(hour=1, timezone=wrong)

    @pytest.mark.parametrize("nonsense", ["", "../../etc/passwd", "/etc/localtime", "\0", "Mars/Olympus"])
    def test_nonsense_is_a_value_error(self, nonsense: str) -> None:
        with pytest.raises(ValueError, match="no time zone is called"):
            astimezone(nonsense)

    def test_what_is_no_zone_is_a_type_error(self) -> None:
        with pytest.raises(TypeError, match="not 4"):
            astimezone(4)  # type: ignore[call-overload]

    def test_the_same_zone_by_name_or_object_makes_equal_triggers(self) -> None:
        by_name = CronTrigger(hour=1, timezone="UTC")
        assert by_name == CronTrigger(hour=1, timezone=ZoneInfo("UTC"))
        assert hash(by_name) == hash(CronTrigger(hour=1, timezone=UTC))
        assert by_name != CronTrigger(hour=1, timezone="Europe/Berlin")

    def test_a_local_zone_without_a_name_cannot_be_stored(self) -> None:
        block = b"TZif2" + bytes(15) + struct.pack(">6l", 0, 0, 0, 0, 1, 4) + struct.pack(">lBB4s", 3600, 0, 0, b"CET")
        zone_file = io.BytesIO(block + block + b"\nCET-1CEST,M3.5.0,M10.5.0/3\n")
        trigger = CronTrigger(hour=2, minute=30, timezone=ZoneInfo.from_file(zone_file, key="local"))
        assert shown(trigger.next_fire(None, us("2026-03-29")), "Europe/Berlin") == "2026-03-29 03:00:00+02:00"
        with pytest.raises(ValueError, match="has no name"):
            trigger.to_data()


class TestZonesOfOtherLibraries:
    @pytest.mark.parametrize(
        "tz",
        [
            pytz.timezone("Europe/Berlin"),
            pytz.timezone("Europe/Berlin").localize(datetime(2026, 7, 1)).tzinfo,
            dateutil_tz.gettz("Europe/Berlin"),
        ],
        ids=["pytz", "pytz-localized", "dateutil"],
    )
    def test_a_zone_with_a_name_becomes_a_zoneinfo(self, tz: tzinfo) -> None:
        trigger = CronTrigger(hour=2, minute=30, timezone=tz)
        assert trigger.timezone == ZoneInfo("Europe/Berlin")
        assert trigger == CronTrigger(hour=2, minute=30, timezone="Europe/Berlin")

    @pytest.mark.parametrize(
        ("tz", "name"),
        [
            (pytz.utc, "UTC"),
            (pytz.FixedOffset(330), "UTC+05:30"),
            (dateutil_tz.tzutc(), "UTC"),
            (dateutil_tz.tzoffset("X", -3600), "UTC-01:00"),
        ],
        ids=["pytz-utc", "pytz-fixed", "dateutil-utc", "dateutil-fixed"],
    )
    def test_a_fixed_offset_becomes_a_name(self, tz: tzinfo, name: str) -> None:
        assert IntervalTrigger(hours=1, start_date="2026-01-01", timezone=tz).to_data()["timezone"] == name

    def test_a_zone_without_a_name_follows_the_rule_but_cannot_be_stored(self) -> None:
        rule = dateutil_tz.tzstr("CET-1CEST,M3.5.0,M10.5.0/3")
        trigger = CronTrigger(hour=2, minute=30, timezone=rule)
        berlin = CronTrigger(hour=2, minute=30, timezone="Europe/Berlin")
        assert walk(trigger, us("2026-01-01"), us("2027-01-01")) == walk(berlin, us("2026-01-01"), us("2027-01-01"))
        with pytest.raises(ValueError, match=r"tzstr.*has no name.*Europe/Berlin"):
            trigger.to_data()

    def test_a_tzinfo_of_one_s_own_works(self) -> None:
        class Odd(tzinfo):
            def utcoffset(self, moment: datetime | None) -> timedelta:
                return timedelta(minutes=-37)

            def dst(self, moment: datetime | None) -> timedelta:
                return timedelta()

            def tzname(self, moment: datetime | None) -> str:
                return "ODD"

        trigger = CronTrigger(hour=0, timezone=Odd())
        assert fires_shown(trigger, "2026-01-01 00:00", "2026-01-02 00:00", "UTC") == ["2026-01-01 00:37:00+00:00"]

    def test_naive_dates_are_in_the_trigger_s_zone(self) -> None:
        trigger = CronTrigger(hour=9, start_date="2026-07-01 10:00:00", timezone=pytz.timezone("America/New_York"))
        assert trigger.start_date == datetime(2026, 7, 1, 14, tzinfo=UTC)

    def test_without_a_zone_the_first_aware_date_gives_it(self) -> None:
        start = datetime(2026, 7, 1, tzinfo=ZoneInfo("Asia/Tokyo"))
        assert CronTrigger(hour=9, start_date=start).timezone == ZoneInfo("Asia/Tokyo")
        assert IntervalTrigger(hours=1, end_date=start).timezone == ZoneInfo("Asia/Tokyo")

    def test_without_any_zone_it_is_the_machine_s(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mainspring.triggers.cron.get_localzone", lambda: ZoneInfo("Asia/Tokyo"))
        assert CronTrigger(hour=9).timezone == ZoneInfo("Asia/Tokyo")
