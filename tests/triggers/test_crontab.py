"""`CronTrigger.from_crontab`: the times of crontab(5)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from croniter import croniter
from cronsim import CronSim

from mainspring.triggers.cron import CronTrigger
from tests.triggers.oracle import DAY, shown, us, walk


class TestFields:
    @pytest.mark.parametrize(
        ("line", "text"),
        [
            ("* * * * *", "cron[month='*', day='*', day_of_week='*', hour='*', minute='*']"),
            ("0 9 * * 1-5", "cron[month='*', day='*', day_of_week='mon-fri', hour='9', minute='0']"),
            (" 0-14   *  *  jul  SUN", "cron[month='jul', day='*', day_of_week='sun', hour='*', minute='0-14']"),
            ("0 0 13 * 5", "cron[month='*', day='13' or day_of_week='fri', hour='0', minute='0']"),
            ("@weekly", "cron[month='*', day='*', day_of_week='sun', hour='0', minute='0']"),
        ],
    )
    def test_are_shown_by_name(self, line: str, text: str) -> None:
        assert str(CronTrigger.from_crontab(line, "UTC")) == text

    @pytest.mark.parametrize(
        ("word", "line"),
        [
            ("@yearly", "0 0 1 1 *"),
            ("@annually", "0 0 1 1 *"),
            ("@monthly", "0 0 1 * *"),
            ("@weekly", "0 0 * * 0"),
            ("@daily", "0 0 * * *"),
            ("@midnight", "0 0 * * *"),
            ("@hourly", "0 * * * *"),
            ("@DAILY", "0 0 * * *"),
        ],
    )
    def test_a_word_stands_for_a_line(self, word: str, line: str) -> None:
        assert CronTrigger.from_crontab(word, "UTC") == CronTrigger.from_crontab(line, "UTC")

    @pytest.mark.parametrize("sunday", ["0", "7", "sun", "SUN"])
    def test_sunday_is_0_and_7(self, sunday: str) -> None:
        trigger = CronTrigger.from_crontab(f"0 0 * * {sunday}", "UTC")
        assert shown(trigger.next_fire(None, us("2026-06-03"))) == "2026-06-07 00:00:00+00:00"

    def test_weekday_numbers_differ_from_those_of_the_constructor(self) -> None:
        assert CronTrigger.from_crontab("0 0 * * 1", "UTC") != CronTrigger(day_of_week=1, hour=0, timezone="UTC")
        monday = us("2026-06-01")
        assert CronTrigger(day_of_week=0, timezone="UTC").next_fire(None, monday) == monday
        assert CronTrigger.from_crontab("0 0 * * 1", "UTC").next_fire(None, monday) == monday


class TestDayOfMonthAndWeekday:
    @pytest.mark.parametrize(
        ("line", "days"),
        [
            ("0 0 13 * 5", [5, 12, 13, 19, 26]),
            ("0 0 13 * *", [13]),
            ("0 0 * * 5", [5, 12, 19, 26]),
            ("0 0 */15 * 1", [1]),
            ("0 0 1-7 * */2", [2, 4, 6, 7]),
            ("0 0 13 * 0-7", list(range(1, 31))),
        ],
    )
    def test_either_is_enough_when_both_are_restricted(self, line: str, days: list[int]) -> None:
        trigger = CronTrigger.from_crontab(line, "UTC")
        june = walk(trigger, us("2026-06-01"), us("2026-06-30 23:59"))
        assert [(fire - us("2026-06-01")) // DAY + 1 for fire in june] == days

    def test_the_constructor_wants_both(self) -> None:
        trigger = CronTrigger(day=13, day_of_week="fri", timezone="UTC")
        assert shown(trigger.next_fire(None, us("2026-06-01"))) == "2026-11-13 00:00:00+00:00"

    def test_the_constructor_takes_either_if_told_so(self) -> None:
        trigger = CronTrigger(day=13, day_of_week="fri", timezone="UTC", either_day=True)
        assert shown(trigger.next_fire(None, us("2026-06-01"))) == "2026-06-05 00:00:00+00:00"
        assert trigger != CronTrigger(day=13, day_of_week="fri", timezone="UTC")

    @pytest.mark.parametrize("fields", [{"hour": 1}, {"day": 13}, {"day_of_week": "fri", "day": "*/2"}])
    def test_either_means_nothing_unless_both_are_restricted(self, fields: dict[str, Any]) -> None:
        trigger = CronTrigger(**fields, timezone="UTC", either_day=True)
        assert not trigger.either_day
        assert trigger == CronTrigger(**fields, timezone="UTC")
        assert str(trigger) == str(CronTrigger(**fields, timezone="UTC"))


LINES = [
    "* * * * *",
    "*/5 * * * *",
    "0 9 * * mon-fri",
    "0 9 * * 1-5",
    "15,45 8-18/2 * * 1-6",
    "0 0 1 * *",
    "0 0 31 * *",
    "0 0 29 2 *",
    "0 12 13 * 5",
    "30 4 1,15 * 0",
    "0 0 1-7 * 1",
    "5 0 * 8 *",
    "0 22 * * 7",
    "0 0 1 1 *",
    "59 23 31 12 *",
]


class TestAgainstOtherLibraries:
    @pytest.mark.parametrize("line", LINES)
    def test_croniter_agrees_in_utc(self, line: str) -> None:
        trigger = CronTrigger.from_crontab(line, "UTC")
        for start in datetime(2026, 2, 27, 23, 58, 30, tzinfo=UTC), datetime(2027, 12, 31, 23, 59, 59, tzinfo=UTC):
            other = croniter(line, start)
            fire = us(start.replace(tzinfo=None).isoformat())
            for _ in range(20):
                fire = trigger.next_fire(fire, fire) or 0
                assert shown(fire) == other.get_next(datetime).isoformat(sep=" ")

    @pytest.mark.parametrize("line", [*LINES, "30 2 * * *", "0 2,3 * * *", "59 1 * * 0", "30 3 * 10 *"])
    @pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
    def test_cronsim_agrees_across_daylight_saving(self, line: str, zone: str) -> None:
        # It calls a schedule fixed only if neither minute nor hour begins with `*`; these mean the same to both.
        trigger = CronTrigger.from_crontab(line, zone)
        for text in "2026-03-07 12:00", "2026-03-28 20:00", "2026-10-03 12:00", "2026-10-24 20:00", "2026-11-01 00:30":
            start = us(text, zone)
            begin = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=start)).astimezone(trigger.timezone)
            other = CronSim(line, begin)
            fire = start
            for _ in range(50):
                fire = trigger.next_fire(fire, fire) or 0
                expected = next(other)
                assert shown(fire, zone) == expected.isoformat(sep=" ")


class TestErrors:
    def test_show_the_line_with_a_mark_under_the_place(self) -> None:
        with pytest.raises(ValueError, match="crontab field") as caught:
            CronTrigger.from_crontab("5,61 * * * *", "UTC")
        assert str(caught.value) == (
            "crontab field 'minute': '61' is above 59\n"
            "    5,61 * * * *\n"
            "      ^^"
        )  # fmt: skip

    def test_mark_the_right_one_of_equal_words(self) -> None:
        with pytest.raises(ValueError, match="crontab field") as caught:
            CronTrigger.from_crontab("13 13  13 13 *", "UTC")
        assert str(caught.value) == (
            "crontab field 'month': '13' is above 12\n"
            "    13 13  13 13 *\n"
            "              ^^"
        )  # fmt: skip

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("* * * *", r"has 4 fields, not 5: minute, hour, day of month, month, day of week$"),
            ("0 * * * * *", r"has 6 fields, not 5: .*CronTrigger\(second="),
            ("", r"has 0 fields, not 5"),
            ("x", r"has 1 field, not 5"),
            ("@reboot", r"'@reboot' is not a time; call the function when your program starts"),
            ("@dayly", r"'@dayly' is unknown; did you mean '@daily'"),
            ("0 0 * * 8", r"'8' is above 7"),
            ("0 0 * * 6-1", r"'6-1' runs backwards"),
            ("0 0 L * *", r"write 'last'"),
        ],
    )
    def test_say_what_is_wrong(self, line: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            CronTrigger.from_crontab(line, "UTC")
