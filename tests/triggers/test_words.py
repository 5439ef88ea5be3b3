"""Triggers say in words when they fire."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from mainspring.triggers import (
    AndTrigger,
    BaseTrigger,
    CalendarIntervalTrigger,
    CronTrigger,
    DateTrigger,
    IntervalTrigger,
    OrTrigger,
)

CRONTAB = {
    "0 9 * * mon-fri": "every weekday at 09:00",
    "*/5 * * * *": "every 5 minutes",
    "*/5 9-17 * * mon-fri": "every 5 minutes from 09:00 to 17:55 on weekdays",
    "0,30 9-17 * * sat,sun": "every 30 minutes from 09:00 to 17:30 at weekends",
    "* * * * *": "every minute",
    "* 9 * * *": "every minute from 09:00 to 09:59",
    "1-59/2 * * * *": "every 2 minutes from minute 1",
    "5,17,42 * * * *": "every hour at minutes 5, 17 and 42",
    "0 * * * *": "every hour",
    "30 * * * *": "every hour at 30 minutes past",
    "0 */2 * * *": "every 2 hours",
    "0 1-23/2 * * *": "every 2 hours, from 01:00",
    "15 */6 * * *": "every 6 hours at 15 minutes past",
    "0 9-12,14-17 * * *": "every hour from 09:00 to 12:00 and from 14:00 to 17:00",
    "0 9,12,17 * * *": "every day at 09:00, 12:00 and 17:00",
    "0 0 1 * *": "on the 1st of every month at 00:00",
    "0 0 1,15 1 *": "on the 1st and 15th of January at 00:00",
    "0 0 1-7 * *": "on the 1st to 7th of every month at 00:00",
    "0 0 */2 * *": "on every 2nd day from the 1st to the 31st of every month at 00:00",
    "0 0 13 * fri": "on the 13th of every month and every Friday at 00:00",
    "*/5 * 13 * fri": "every 5 minutes on the 13th of every month and on Fridays",
    "0 3 * jul *": "every day in July at 03:00",
    "@weekly": "every Sunday at 00:00",
    "0 0 30 2 *": "on the 30th of February at 00:00, which never comes",
}

CRON: list[tuple[dict[str, Any], str]] = [
    ({"second": "*"}, "every second, UTC"),
    ({"second": "*/10"}, "every 10 seconds, UTC"),
    ({"minute": 0, "second": "*/5"}, "every 5 seconds in minute 0 of every hour, UTC"),
    ({"minute": 5, "second": 30}, "every hour at 5 min 30 s past, UTC"),
    ({"hour": 9, "minute": 0, "second": 30}, "every day at 09:00:30, UTC"),
    ({"day": "last", "hour": 3}, "on the last day of every month at 03:00, UTC"),
    ({"day": "1st mon, last fri", "hour": 3}, "on the first Monday and the last Friday of every month at 03:00, UTC"),
    ({"day": 13, "day_of_week": "fri", "hour": 0}, "on the 13th of every month (if it is a Friday) at 00:00, UTC"),
    ({"year": 2027}, "on the 1st of January at 00:00 in 2027, UTC"),
    ({"week": "1-4", "hour": 3, "jitter": 30}, "every day at 03:00 in ISO weeks 1 to 4, UTC, up to 30 s later"),
    (
        {"hour": 3, "start_date": "2026-01-01", "end_date": "2026-12-31"},
        "every day at 03:00, UTC, from 2026-01-01 00:00, until 2026-12-31 00:00",
    ),
]

INTERVALS: list[tuple[dict[str, Any], str]] = [
    ({"seconds": 1}, "every second"),
    ({"seconds": 90}, "every 90 seconds"),
    ({"seconds": 0.25}, "every 0.25 seconds"),
    ({"minutes": 5}, "every 5 minutes"),
    ({"hours": 1, "minutes": 30}, "every 90 minutes"),
    ({"hours": 25, "seconds": 1}, "every 1 day 1 hour 1 second"),
    ({"days": 1}, "every 24 hours"),
    ({"weeks": 1, "jitter": 60}, "every 7 days, up to 60 s later"),
    ({"hours": 1, "end_date": "2100-01-01"}, "every hour, until 2100-01-01 00:00"),
]

CALENDAR: list[tuple[dict[str, Any], str]] = [
    ({"days": 1, "hour": 9}, "every day at 09:00, UTC"),
    ({"weeks": 2, "hour": 9, "minute": 5}, "every 2 weeks on Tuesday at 09:05, UTC"),
    ({"months": 1}, "every month on the 31st at 00:00, UTC"),
    ({"years": 1}, "every year on 31 March at 00:00, UTC"),
    ({"months": 2, "days": 1, "end_date": "2027-01-01"}, "every 2 months and 1 day at 00:00, UTC, until 2027-01-01"),
]


@pytest.mark.parametrize("expression", CRONTAB)
def test_a_crontab_expression_is_said_in_words(expression: str) -> None:
    trigger = CronTrigger.from_crontab(expression, "Europe/Berlin")

    assert trigger.describe() == f"{CRONTAB[expression]}, Europe/Berlin"


@pytest.mark.parametrize(("options", "words"), CRON)
def test_a_cron_trigger_is_said_in_words(options: dict[str, Any], words: str) -> None:
    assert CronTrigger(**options, timezone="UTC").describe() == words


@pytest.mark.parametrize(("options", "words"), INTERVALS)
def test_an_interval_is_said_in_words(options: dict[str, Any], words: str) -> None:
    assert IntervalTrigger(**options, timezone="UTC").describe() == words


@pytest.mark.parametrize(("options", "words"), CALENDAR)
def test_a_calendar_interval_is_said_in_words(options: dict[str, Any], words: str) -> None:
    assert CalendarIntervalTrigger(**options, start_date="2026-03-31", timezone="UTC").describe() == words


def test_a_date_is_said_in_words() -> None:
    assert DateTrigger("2026-03-29 09:30", "Europe/Berlin").describe() == "once at 2026-03-29 09:30, Europe/Berlin"
    assert DateTrigger("2026-03-29 09:30:05", "UTC").describe() == "once at 2026-03-29 09:30:05, UTC"


def test_combinations_are_said_in_words() -> None:
    weekdays, three = CronTrigger.from_crontab("0 9 * * mon-fri", "UTC"), CronTrigger(hour=3, timezone="UTC")

    both = AndTrigger([weekdays, three], jitter=5)
    either = OrTrigger([weekdays, AndTrigger([IntervalTrigger(hours=2), three])])

    assert both.describe() == "every weekday at 09:00, UTC; and every day at 03:00, UTC, up to 5 s later"
    assert either.describe() == "every weekday at 09:00, UTC; or (every 2 hours; and every day at 03:00, UTC)"


def test_a_combination_that_is_nested_deeply_is_described_in_a_few_words() -> None:
    trigger: BaseTrigger = CronTrigger(hour=3, timezone="UTC")
    for _ in range(60):
        trigger = OrTrigger([trigger, trigger])

    assert "a combination of 2 triggers" in trigger.describe()


def test_a_trigger_of_a_user_describes_itself_by_its_text() -> None:
    class Never(BaseTrigger):
        def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
            return None

        def __str__(self) -> str:
            return "never"

    assert Never().describe() == "never"
