"""Cron expressions: what the texts mean, how they are shown, and what their errors say."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest

from mainspring.triggers.cron import CronFieldError, CronTrigger
from mainspring.triggers.cron.fields import LIMITS, parse_field, weekday_text
from mainspring.triggers.cron.schedule import compile_schedule


def allowed(name: str, text: str, crontab: bool = False) -> list[int]:
    mask = parse_field(name, text, crontab=crontab).mask
    return [value for value in range(mask.bit_length()) if mask >> value & 1]


class TestValues:
    @pytest.mark.parametrize(
        ("name", "text", "values"),
        [
            ("minute", "*", list(range(60))),
            ("minute", "*/25", [0, 25, 50]),
            ("minute", "5", [5]),
            ("minute", "5-8", [5, 6, 7, 8]),
            ("minute", "5-20/5", [5, 10, 15, 20]),
            ("minute", "50/4", [50, 54, 58]),
            ("minute", "7,3 , 5-6", [3, 5, 6, 7]),
            ("second", "0-59/1", list(range(60))),
            ("hour", "23", [23]),
            ("day", "*/10", [1, 11, 21, 31]),
            ("week", "*/26", [1, 27, 53]),
            ("month", "jan", [1]),
            ("month", "MAR-May,dec", [3, 4, 5, 12]),
            ("month", "jan-dec/4", [1, 5, 9]),
            ("month", "nov-feb", [1, 2, 11, 12]),
            ("month", "nov-feb/2", [1, 11]),
            ("day_of_week", "0", [0]),
            ("day_of_week", "mon-fri", [0, 1, 2, 3, 4]),
            ("day_of_week", "mon-fri/2", [0, 2, 4]),
            ("day_of_week", "fri-mon", [0, 4, 5, 6]),
            ("day_of_week", "sun-sat", [0, 1, 2, 3, 4, 5, 6]),
            ("day_of_week", "*/2", [0, 2, 4, 6]),
            ("year", "2026", [2026]),
            ("year", "2026-2030/2", [2026, 2028, 2030]),
        ],
    )
    def test_a_field_allows(self, name: str, text: str, values: list[int]) -> None:
        assert allowed(name, text) == values

    @pytest.mark.parametrize("name", LIMITS)
    def test_a_star_allows_all(self, name: str) -> None:
        low, high = LIMITS[name]
        assert allowed(name, "*") == list(range(low, high + 1))

    @pytest.mark.parametrize("step", [1, 2, 3, 7, 400, 8029])
    def test_a_step_over_the_years_allows_every_so_many(self, step: int) -> None:
        assert allowed("year", f"*/{step}") == list(range(1970, 10_000, step))

    @pytest.mark.parametrize(
        ("text", "values"),
        [
            ("0", [6]),
            ("7", [6]),
            ("1-5", [0, 1, 2, 3, 4]),
            ("5-7", [4, 5, 6]),
            ("0-2", [0, 1, 6]),
            ("0-7", [0, 1, 2, 3, 4, 5, 6]),
            ("sun-tue", [0, 1, 6]),
            ("fri-sun", [4, 5, 6]),
            ("sat-mon", [0, 5, 6]),
            ("mon", [0]),
            ("*/2", [1, 3, 5, 6]),
            ("1,3,sun", [0, 2, 6]),
        ],
    )
    def test_a_crontab_counts_weekdays_from_sunday(self, text: str, values: list[int]) -> None:
        assert allowed("day_of_week", text, crontab=True) == values

    @pytest.mark.parametrize(
        ("mask", "text"),
        [(0b0011111, "mon-fri"), (0b1000011, "mon-tue,sun"), (0b0000001, "mon"), (0b1111111, "mon-sun")],
    )
    def test_weekdays_are_written_by_name(self, mask: int, text: str) -> None:
        assert weekday_text(mask) == text


class TestDefaults:
    @pytest.mark.parametrize(
        ("given", "texts"),
        [
            ({}, "* * * * * * * *"),
            ({"year": 2026}, "2026 1 1 * * 0 0 0"),
            ({"month": 5}, "* 5 1 * * 0 0 0"),
            ({"week": 5}, "* * * 5 * 0 0 0"),
            ({"hour": 9}, "* * * * * 9 0 0"),
            ({"minute": 30}, "* * * * * * 30 0"),
            ({"day": 1, "minute": 5}, "* * 1 * * * 5 0"),
            ({"second": "*/10"}, "* * * * * * * */10"),
        ],
    )
    def test_fields_after_the_last_given_one_are_lowest_and_the_others_match_always(
        self, given: dict[str, int | str], texts: str
    ) -> None:
        trigger = CronTrigger(**given, timezone="UTC")  # type: ignore[arg-type]
        assert [str(field) for field in trigger.fields] == texts.split(" ")
        assert {field.name for field in trigger.fields if not field.is_default} == set(given)

    def test_equal_texts_share_one_schedule(self) -> None:
        first = CronTrigger(hour=9, timezone="UTC")
        second = CronTrigger(hour="9", timezone="Europe/Berlin")
        assert first._schedule is second._schedule

    def test_equal_dates_share_one_calendar(self) -> None:
        first = compile_schedule((None, None, None, None, "mon-fri", "9", None, None))
        second = compile_schedule((None, None, None, None, "mon-fri", "10", None, None))
        assert first.calendar is second.calendar


class TestShown:
    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"hour": 9}, "cron[hour='9']"),
            ({"day": " 1-2,  4-7"}, "cron[day='1-2,4-7']"),
            ({"day": "LAST  Fri"}, "cron[day='last fri']"),
            ({"day_of_week": "MON-Fri", "hour": 8}, "cron[day_of_week='mon-fri', hour='8']"),
        ],
    )
    def test_in_normal_form(self, given: dict[str, int | str], text: str) -> None:
        trigger = CronTrigger(**given, timezone="UTC")  # type: ignore[arg-type]
        assert str(trigger) == text

    def test_with_everything(self) -> None:
        trigger = CronTrigger(
            hour=9, start_date="2026-01-01", end_date="2026-07-01", timezone="Europe/Berlin", jitter=30
        )
        assert repr(trigger) == (
            "<CronTrigger (hour='9', start_date='2026-01-01 00:00:00 CET', end_date='2026-07-01 00:00:00 CEST',"
            " jitter=30, timezone='Europe/Berlin')>"
        )

    def test_attributes_stay_readable(self) -> None:
        trigger = CronTrigger(hour=9, start_date="2026-01-01", timezone="UTC", jitter=5)
        assert trigger.start_date == datetime(2026, 1, 1, tzinfo=UTC)
        assert trigger.end_date is None
        assert trigger.jitter == 5
        assert tuple(field.name for field in trigger.fields) == CronTrigger.FIELD_NAMES


class TestErrors:
    @pytest.mark.parametrize(
        ("field", "text", "message"),
        [
            ("minute", "5,61", "cron field 'minute': '61' is above 59 (in '5,61')"),
            ("minute", "61", "cron field 'minute': '61' is above 59"),
            ("hour", "0-24", "cron field 'hour': '24' is above 23 (in '0-24')"),
            ("day", "0-3", "cron field 'day': '0' is below 1 (in '0-3')"),
            ("day", "*/31", "cron field 'day': the step 31 is longer than the range '*' (in '*/31')"),
            ("day", "4-6/3", "cron field 'day': the step 3 is longer than the range '4-6' (in '4-6/3')"),
            ("minute", "*/0", "cron field 'minute': the step '0' is not a number above 0 (in '*/0')"),
            ("minute", "*/x", "cron field 'minute': the step 'x' is not a number above 0 (in '*/x')"),
            ("minute", "5/", "cron field 'minute': the step '' is not a number above 0 (in '5/')"),
            ("hour", "22-6", "cron field 'hour': '22-6' runs backwards; write '22-23,0-6' to go round"),
            ("hour", "nine", "cron field 'hour': 'nine' is not a number from 0 to 23"),
            ("hour", "-3", "cron field 'hour': a value is missing (in '-3')"),
            ("hour", "", "cron field 'hour': a value is missing"),
            ("hour", "1,,2", "cron field 'hour': a value is missing (in '1,,2')"),
            ("hour", "1.5", "cron field 'hour': '1.5' is not a number from 0 to 23"),
            ("year", "2009-fault", "cron field 'year': 'fault' is not a number from 1970 to 9999 (in '2009-fault')"),
            ("year", "1969", "cron field 'year': '1969' is below 1970"),
            ("year", "10000", "cron field 'year': '10000' is above 9999"),
            ("month", "january",
             "cron field 'month': 'january' is neither a number nor a name; did you mean 'jan'?"),
            ("day_of_week", "fre",
             "cron field 'day_of_week': 'fre' is neither a number nor a name; did you mean 'fri'?"),
            ("day_of_week", "7", "cron field 'day_of_week': '7' is above 6"),
            ("day", "?", "cron field 'day': '?' means nothing here; write '*'"),
            ("day", "L", "cron field 'day': 'l' means nothing here; write 'last'"),
            ("day", "6th mon",
             "cron field 'day': '6th' is neither a number nor a name; did you mean '5th' or '4th'? (in '6th mon')"),
            ("day", "1st moon",
             "cron field 'day': 'moon' is neither a number nor a name; did you mean 'mon'? (in '1st moon')"),
            ("minute", "٣", "cron field 'minute': '٣' is not a number from 0 to 59"),
        ],
    )  # fmt: skip
    def test_nonsense_is_an_error_that_shows_the_place(self, field: str, text: str, message: str) -> None:
        with pytest.raises(ValueError, match="cron field") as caught:
            CronTrigger(**{field: text}, timezone="UTC")  # type: ignore[arg-type]
        assert str(caught.value) == message

    def test_the_error_tells_the_place_by_its_attributes(self) -> None:
        with pytest.raises(CronFieldError) as caught:
            CronTrigger(minute=" 5, 61", timezone="UTC")
        error = caught.value
        assert (error.field, error.text[error.start : error.end]) == ("minute", "61")

    def test_the_error_survives_pickling(self) -> None:
        with pytest.raises(CronFieldError) as caught:
            CronTrigger(minute="5,61", timezone="UTC")
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)

    def test_an_unknown_field_is_a_type_error(self) -> None:
        with pytest.raises(TypeError, match="third"):
            CronTrigger(second=0, third=1, timezone="UTC")  # type: ignore[call-arg]

    def test_an_end_before_the_start_is_an_error(self) -> None:
        with pytest.raises(ValueError, match=r"CronTrigger: end_date 2026-01-01.* is before start_date 2026-02-01"):
            CronTrigger(hour=1, start_date="2026-02-01", end_date="2026-01-01", timezone="UTC")

    @pytest.mark.parametrize("text", ["2026-13-01", "tomorrow", "2026-02-30 10:00:00", "12:00"])
    def test_a_date_that_is_none_is_an_error_that_names_the_argument(self, text: str) -> None:
        with pytest.raises(ValueError, match=f"start_date: '{text}' is not a date"):
            CronTrigger(hour=1, start_date=text, timezone="UTC")

    def test_a_date_of_another_type_is_a_type_error(self) -> None:
        with pytest.raises(TypeError, match="end_date is a datetime, a date or a text"):
            CronTrigger(hour=1, end_date=92123, timezone="UTC")  # type: ignore[arg-type]
