"""What people exclude: how it is read, said in words, stored, and read from iCalendar files."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pytest

from mainspring.core.instants import to_us
from mainspring.triggers.exclusions import Exclusions, read_exclusions
from mainspring.triggers.exclusions.ics import events_of
from mainspring.triggers.zones import astimezone, zone_of

BERLIN = zone_of(astimezone("Europe/Berlin"))


def excluded(exclusions: Exclusions, text: str, zone: Any = BERLIN) -> bool:
    moment = datetime.fromisoformat(text)
    instant = to_us(moment if moment.tzinfo else moment.replace(tzinfo=zone.tz))
    return exclusions.free_from(instant, zone) != instant


@pytest.mark.parametrize(
    ("given", "inside", "outside", "words"),
    [
        ("2026-12-24", "2026-12-24T23:59", "2026-12-25", "2026-12-24"),
        (date(2026, 12, 24), "2026-12-24", "2026-12-23T23:59:59", "2026-12-24"),
        ("2026-12-24..2027-01-06", "2027-01-06T23:59", "2027-01-07", "2026-12-24 to 2027-01-06"),
        ((date(2026, 12, 24), date(2026, 12, 26)), "2026-12-26T12:00", "2026-12-27", "2026-12-24 to 2026-12-26"),
        ("12-25", "2031-12-25T08:00", "2031-12-26", "25 December"),
        ("02-29", "2028-02-29T08:00", "2027-03-01", "29 February"),
        ("sat,sun", "2026-05-09T00:00", "2026-05-11T00:00", "weekends"),
        ("weekends", "2026-05-10T23:59", "2026-05-08T23:59", "weekends"),
        ("mon-thu", "2026-05-07T12:00", "2026-05-08", "Mondays, Tuesdays, Wednesdays and Thursdays"),
        ("fri-mon", "2026-05-11T12:00", "2026-05-12", "Mondays, Fridays, Saturdays and Sundays"),
        ("12:00-13:00", "2026-05-09T12:59:59", "2026-05-09T13:00", "12:00-13:00"),
        ((time(12), time(13)), "2026-05-09T12:00", "2026-05-09T11:59", "12:00-13:00"),
        ("22:00-06:00", "2026-05-09T05:59", "2026-05-09T06:00", "22:00-06:00"),
        ("sat 22:00-06:00", "2026-05-10T05:59", "2026-05-09T05:59", "Sat 22:00-06:00"),
        ("sun 22:00-06:00", "2026-05-11T05:59", "2026-05-12T05:59", "Sun 22:00-06:00"),
        ("mon-fri 12:00-13:30", "2026-05-08T13:29", "2026-05-09T12:30", "Mon-Fri 12:00-13:30"),
        (
            "2026-12-24T18:00..2026-12-27T08:00",
            "2026-12-24T18:00",
            "2026-12-27T08:00",
            "2026-12-24 18:00 to 2026-12-27 08:00",
        ),
        (
            (datetime(2026, 5, 9, 10, tzinfo=UTC), datetime(2026, 5, 9, 11, tzinfo=UTC)),
            "2026-05-09T12:30",
            "2026-05-09T10:30",
            "2026-05-09 10:00 to 2026-05-09 11:00 UTC",
        ),
        ([date(2026, 5, 1), "weekends"], "2026-05-02", "2026-05-04", "weekends and 2026-05-01"),
        ({date(2026, 5, 1): "Labour Day"}, "2026-05-01", "2026-05-02", "2026-05-01"),
    ],
)
def test_exclusions_are_read_said_and_stored(given: Any, inside: str, outside: str, words: str) -> None:
    found = read_exclusions(given)
    assert (excluded(found, inside), excluded(found, outside)) == (True, False)
    assert found.describe() == words
    assert Exclusions.from_data(found.to_data()) == found
    assert read_exclusions(found.texts()) == found
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("2026-02-30", "is not a date or time; write '2026-12-24'"),
        ("13-45", "is not a date or time"),
        ("satuday", "did you mean"),
        ("12:00-12:00", "ends when it begins"),
        ("25:00-26:00", "is not a date"),
        ("mon-sun", "no time of the week"),
        (["mon-fri", "weekends"], "every weekday is excluded"),
        ("2026-05-09..2026-05-01", "2026-05-01 is before 2026-05-09"),
        (datetime(2026, 5, 9), "is a moment; give the span"),
        ((datetime(2026, 5, 9), datetime(2026, 5, 10, tzinfo=UTC)), "one has a time zone and one has none"),
        ([date.fromordinal(738_000 + 2 * n) for n in range(10_001)], "at most 10,000"),
        ("nowhere.ics", "cannot read 'nowhere.ics': No such file"),
    ],
)
def test_what_cannot_be_excluded_is_refused_in_a_sentence(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_exclusions(given)


def test_a_number_is_refused() -> None:
    with pytest.raises(TypeError, match="exclude takes dates, spans, weekdays and windows"):
        read_exclusions(5)


def test_an_hour_that_is_shown_twice_is_excluded_twice() -> None:
    found = read_exclusions("02:30-03:30")  # on 25 October 2026 the clock goes from 03:00 back to 02:00
    shown = {text: excluded(found, f"2026-10-25T{text}") for text in
             ("00:15+00:00", "00:45+00:00", "01:15+00:00", "01:45+00:00", "02:15+00:00", "02:45+00:00")}  # fmt: skip
    assert list(shown.values()) == [False, True, False, True, True, False]


def test_many_dates_are_counted() -> None:
    found = read_exclusions([date(2026, 1, day) for day in (1, 3, 5, 7)])
    assert found.describe() == "4 dates from 2026-01-01 to 2026-01-07"


# -- iCalendar -----------------------------------------------------------------------------------------------------

CALENDAR = """BEGIN:VCALENDAR\r
VERSION:2.0\r
X-WR-CALNAME:Holidays; and\r
  more\r
{}END:VCALENDAR\r
"""


def calendar(*lines: str) -> str:
    return CALENDAR.format("".join(f"{line}\r\n" for line in ("BEGIN:VEVENT", "SUMMARY:Party", *lines, "END:VEVENT")))


@pytest.mark.parametrize(
    ("lines", "inside", "outside"),
    [
        (["DTSTART;VALUE=DATE:20261224"], "2026-12-24T12:00", "2026-12-25"),
        (["DTSTART;VALUE=DATE:20261224", "DTEND;VALUE=DATE:20261227"], "2026-12-26T23:00", "2026-12-27"),
        (["DTSTART;VALUE=DATE:20261224", "DURATION:P1W"], "2026-12-30T23:00", "2026-12-31"),
        (["DTSTART:20261224T120000Z", "DTEND:20261224T130000Z"], "2026-12-24T13:30", "2026-12-24T12:30"),
        (["DTSTART:20261224T120000", "DURATION:PT1H30M"], "2026-12-24T13:29", "2026-12-24T13:30"),
        (
            ["DTSTART;TZID=America/New_York:20261224T120000", "DTEND;TZID=America/New_York:20261224T130000"],
            "2026-12-24T18:30",
            "2026-12-24T12:30",
        ),
        (
            ['DTSTART;TZID="Europe/Berlin";X-A="b:c;d":20261224T120000', "DURATION:PT1H"],
            "2026-12-24T12:30",
            "2026-12-24",
        ),
        (["DTSTART;VALUE=DATE:20201225", "RRULE:FREQ=YEARLY"], "2031-12-25", "2031-12-26"),
        (
            ["DTSTART;VALUE=DATE:20201126", "RRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH"],
            "2027-11-25T08:00",
            "2027-11-26",
        ),
        (["DTSTART;VALUE=DATE:20200525", "RRULE:FREQ=YEARLY;BYMONTH=5;BYDAY=-1MO"], "2026-05-25", "2026-05-18"),
        (["DTSTART;VALUE=DATE:20200101", "RRULE:FREQ=YEARLY;COUNT=3"], "2022-01-01", "2023-01-01"),
        (["DTSTART;VALUE=DATE:20200101", "RRULE:FREQ=YEARLY;UNTIL=20220101"], "2022-01-01", "2023-01-01"),
        (["DTSTART;VALUE=DATE:20200101", "RRULE:FREQ=YEARLY;INTERVAL=2"], "2022-01-01", "2023-01-01"),
        (
            ["DTSTART;VALUE=DATE:20200101", "RRULE:FREQ=YEARLY", "EXDATE;VALUE=DATE:20260101,20270101"],
            "2028-01-01",
            "2026-01-01",
        ),
        (["DTSTART:20200101T100000", "DURATION:PT1H", "RRULE:FREQ=YEARLY"], "2026-01-01T10:30", "2026-01-01T11:30"),
        (
            ["DTSTART;VALUE=DATE:20261224", "BEGIN:VALARM", "DTSTART:19990101T000000Z", "END:VALARM"],
            "2026-12-24",
            "1999-01-01",
        ),
    ],
)
def test_an_event_of_a_calendar_is_excluded(lines: list[str], inside: str, outside: str) -> None:
    found = events_of(calendar(*lines))
    assert (excluded(found, inside), excluded(found, outside)) == (True, False)
    assert Exclusions.from_data(found.to_data()) == found


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["DTSTART;VALUE=DATE:20260101", "RRULE:FREQ=WEEKLY"], "event 'Party': RRULE 'FREQ=WEEKLY' is not supported"),
        (["DTSTART;VALUE=DATE:20260101", "RRULE:FREQ=YEARLY;BYSETPOS=1"], "BYSETPOS is not read"),
        (["DTSTART;VALUE=DATE:20260101", "RRULE:FREQ=YEARLY;BYDAY=MO"], "together with BYMONTH"),
        (["DTSTART;VALUE=DATE:20260101", "RDATE;VALUE=DATE:20260105"], "RDATE is not supported"),
        (["DTSTART;VALUE=DATE:20260101", "RECURRENCE-ID;VALUE=DATE:20260101"], "RECURRENCE-ID is not supported"),
        (["DTSTART;TZID=Nowhere/Land:20260101T000000", "DURATION:PT1H"], "no time zone is called 'Nowhere/Land'"),
        (["DTSTART:20260101T000000Z"], "neither DTEND nor DURATION"),
        (["DTSTART:2026-01-01"], "is not a date or time"),
        (["DTSTART:20260101T000000Z", "DTEND:20260101T000000"], "one has a time zone and one has none"),
        (["DTSTART:20260102T000000", "DTEND:20260101T000000"], "ends before it begins"),
        ([], "has no DTSTART"),
    ],
)
def test_an_event_that_cannot_be_read_is_refused_by_name(lines: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        events_of(calendar(*lines))


def test_a_cancelled_event_is_not_excluded(tmp_path: Path) -> None:
    text = calendar("DTSTART;VALUE=DATE:20261224").replace("END:VCALENDAR", "") + (
        "BEGIN:VEVENT\nSTATUS:CANCELLED\nDTSTART;VALUE=DATE:20261225\nEND:VEVENT\nEND:VCALENDAR\n"
    )
    file = tmp_path / "holidays.ics"
    file.write_text("\ufeff" + text, encoding="utf-8")
    for given in (file, str(file)):
        assert read_exclusions(given) == read_exclusions("2026-12-24")


@pytest.mark.parametrize("text", ["", "hello", "BEGIN:VCALENDAR\nEND:VCALENDAR\n", "BEGIN:VCALENDAR\nBEGIN:VEVENT\n"])
def test_a_file_that_is_no_calendar_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "holidays.ics"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"holidays\.ics'"):
        read_exclusions(file)
