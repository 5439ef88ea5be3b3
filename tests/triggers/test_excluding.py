"""A trigger that does not fire at excluded times: its fires against a plain walk, clock changes, bounds, data."""

from __future__ import annotations

import pickle
import random
from datetime import UTC, date, datetime
from typing import Any

import pytest

from mainspring.core.instants import SECOND, from_us, to_us
from mainspring.core.job import Job
from mainspring.core.run import Call
from mainspring.core.schedules.declaration import is_same_trigger
from mainspring.core.schedules.linting import check_possible, issues_of
from mainspring.core.schedules.upcoming import preview
from mainspring.plugins import make_trigger
from mainspring.triggers import trigger_from_data
from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.calendarinterval import CalendarIntervalTrigger
from mainspring.triggers.clock_notes import clock_note
from mainspring.triggers.combining import OrTrigger
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.date import DateTrigger
from mainspring.triggers.excluding import ExcludingTrigger, like, plain_trigger
from mainspring.triggers.interval import IntervalTrigger

DAY = 86_400 * SECOND
BERLIN = "Europe/Berlin"


def at(text: str) -> int:
    return to_us(datetime.fromisoformat(text).replace(tzinfo=UTC))


def cron(line: str, exclude: Any, zone: str = BERLIN) -> ExcludingTrigger:
    return ExcludingTrigger(CronTrigger.from_crontab(line, zone), exclude)


def fires(trigger: BaseTrigger, start: str, count: int) -> list[str]:
    shown: list[str] = []
    fire = trigger.next_fire(None, at(start))
    while fire is not None and len(shown) < count:
        shown.append(f"{from_us(fire, trigger.timezone or UTC):%a %m-%d %H:%M}")
        fire = trigger.next_fire(fire, fire)
    return shown


def test_weekends_and_holidays_leave_the_business_days() -> None:
    trigger = cron("0 9 * * *", ["weekends", "12-25", "12-26", date(2026, 12, 24)])
    assert fires(trigger, "2026-12-22", 4) == [
        "Tue 12-22 09:00",
        "Wed 12-23 09:00",
        "Mon 12-28 09:00",
        "Tue 12-29 09:00",
    ]
    assert trigger.describe() == (
        "every day at 09:00, Europe/Berlin, except weekends, 25 December, 26 December and 2026-12-24"
    )


def test_a_window_is_left_out_every_day() -> None:
    assert fires(cron("*/30 * * * *", "00:15-23:15"), "2026-05-04", 3) == [
        "Mon 05-04 23:30", "Tue 05-05 00:00", "Tue 05-05 23:30",
    ]  # fmt: skip


TRIGGERS = {
    "cron": CronTrigger(hour="2,12", minute="15,45", timezone=BERLIN),
    "minutes": CronTrigger(minute="*/20", timezone=BERLIN),
    "interval": IntervalTrigger(minutes=37, start_date="2026-03-01", timezone=BERLIN),
    "calendar": CalendarIntervalTrigger(days=1, hour=2, minute=15, start_date="2026-03-01", timezone=BERLIN),
    "or": OrTrigger([CronTrigger(hour=2, minute=30, timezone=BERLIN), CronTrigger(hour="*/3", timezone=BERLIN)]),
}
EXCLUDED: dict[str, Any] = {
    "weekends": "weekends",
    "window": "02:20-03:10",
    "night": "22:00-06:00",
    "mixed": ["sun 01:00-04:00", "03-31", date(2026, 3, 30), "2026-10-24T12:00..2026-10-25T02:40"],
}


def walked(trigger: ExcludingTrigger, start: int, end: int) -> list[int]:
    """Find the fires by looking at each fire of the plain trigger alone."""
    found, plain = [], trigger.trigger
    fire = plain.first_fire(start)
    while fire is not None and fire <= end:
        if trigger.exclude.free_from(fire, trigger._zone) == fire and not trigger._is_moved_out(fire):
            found.append(fire)
        fire = plain.next_fire(fire, fire)
    return found


@pytest.mark.parametrize("excluded", EXCLUDED)
@pytest.mark.parametrize("kind", TRIGGERS)
@pytest.mark.parametrize("start", ["2026-03-25", "2026-10-21"])
def test_fires_are_those_that_a_plain_walk_finds_across_changes_of_the_clock(
    kind: str, excluded: str, start: str
) -> None:
    trigger = ExcludingTrigger(TRIGGERS[kind], EXCLUDED[excluded])
    begin, end = at(start), at(start) + 9 * DAY
    wanted = walked(trigger, begin, end)
    found, fire = [], trigger.first_fire(begin)
    while fire is not None and fire <= end:
        found.append(fire)
        fire = trigger.next_fire(fire, fire)
    assert found == wanted
    dice = random.Random(f"{kind} {excluded} {start}")
    for _ in range(20 if wanted else 0):
        first, until, limit = dice.choice(wanted), begin + dice.randrange(9 * DAY), dice.choice((0, 1, 3, 100))
        expected = [each for each in wanted if first <= each <= until]
        assert trigger.overdue(first, until, limit) == (len(expected), expected[-limit:] if limit else [])


def test_years_of_overdue_fires_are_counted_without_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    trigger = ExcludingTrigger(IntervalTrigger(seconds=1, start_date="2026-01-01", timezone="UTC"), "weekends")
    calls, looked = 0, IntervalTrigger.next_fire

    def counted(self: Any, previous: int | None, now: int) -> int | None:
        nonlocal calls
        calls += 1
        return looked(self, previous, now)

    monkeypatch.setattr(IntervalTrigger, "next_fire", counted)
    first, until = at("2026-01-01"), at("2028-01-01") - 1
    count, [latest] = trigger.overdue(first, until, 1)
    days = sum(
        date.fromordinal(n).weekday() < 5 for n in range(date(2026, 1, 1).toordinal(), date(2028, 1, 1).toordinal())
    )
    assert (count, latest) == (days * 86_400, at("2027-12-31T23:59:59"))
    assert calls < 500


def test_very_many_exclusions_make_the_count_a_lower_bound_and_keep_the_latest_fires() -> None:
    trigger = ExcludingTrigger(IntervalTrigger(hours=1, start_date="2000-01-01", timezone="UTC"), "12:30-13:30")
    count, latest = trigger.overdue(at("2000-01-01"), at("2030-01-01"), 2)
    assert latest == [at("2029-12-31T23:00:00"), at("2030-01-01")]
    assert 5000 <= count <= 30 * 366 * 24


# -- changes of the clock ------------------------------------------------------------------------------------------


def test_a_fire_that_the_clock_moves_out_of_its_excluded_time_is_excluded() -> None:
    # 02:30 does not exist on 29 March: the plain trigger fires at 03:00, which is outside the window.
    trigger = ExcludingTrigger(CronTrigger(hour="2,8", minute=30, timezone=BERLIN), "02:00-03:00")
    assert fires(trigger, "2026-03-28T12:00", 2) == ["Sun 03-29 08:30", "Mon 03-30 08:30"]


def test_of_two_moved_fires_the_one_that_is_not_excluded_takes_place() -> None:
    trigger = ExcludingTrigger(CronTrigger(hour=2, minute="10,50", timezone=BERLIN), "02:00-02:30")
    assert fires(trigger, "2026-03-28T12:00", 2) == ["Sun 03-29 03:00", "Mon 03-30 02:50"]


def test_the_second_pass_of_an_hour_is_judged_by_what_the_clock_shows() -> None:
    trigger = ExcludingTrigger(CronTrigger(minute="0,30", timezone=BERLIN), "02:30-03:30")
    assert fires(trigger, "2026-10-25T00:00", 4) == [
        "Sun 10-25 02:00", "Sun 10-25 02:00", "Sun 10-25 03:30", "Sun 10-25 04:00",
    ]  # fmt: skip


def test_notes_on_clock_changes_are_those_of_the_plain_trigger() -> None:
    trigger = cron("30 2 * * *", "weekdays")
    note = clock_note(trigger, to_us(datetime.fromisoformat("2026-03-29T03:00+02:00")))
    assert note is not None
    assert note.kind == "gap"


# -- never -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trigger", "exclude"),
    [
        ("30 12 * * *", "12:00-13:00"),
        ("0 9 * * sat", "weekends"),
        ("0 0 25 12 *", "12-25"),
        (DateTrigger("2026-05-09 12:00", timezone=BERLIN), "sat"),
        (IntervalTrigger(hours=24, start_date="2026-05-04 12:30", timezone="UTC"), "12:00-13:00"),
    ],
)
def test_a_schedule_whose_times_are_all_excluded_is_refused(trigger: Any, exclude: Any) -> None:
    with pytest.raises(ValueError, match="can never fire: all its times are excluded"):
        make_trigger(trigger, {"exclude": exclude}, zone=UTC, now=lambda: at("2026-05-04"))


def test_a_schedule_that_is_over_is_not_called_excluded() -> None:
    past = CronTrigger(hour=9, end_date="2020-01-01", timezone=BERLIN)
    made = make_trigger(past, {"exclude": "weekends"}, zone=UTC, now=lambda: at("2026-05-04"))
    assert made.first_fire(at("2026-05-04")) is None


def test_an_impossible_date_is_refused_with_exclusions_too() -> None:
    with pytest.raises(ValueError, match="no date matches"):
        check_possible(cron("0 0 30 2 *", "weekends"))


def test_the_linter_tells_of_excluded_dates_that_are_over() -> None:
    job = Job("j", Call("m:f"), cron("0 9 * * *", ["2025-12-24", "2025-12-31"]))
    [issue] = issues_of(job, at("2026-05-04"))
    assert (issue.kind, issue.text) == ("stale", "the dates that it excludes are over: the last was 2025-12-31")
    assert issues_of(Job("j", Call("m:f"), cron("0 9 * * *", "12-24")), at("2026-05-04")) == []


# -- a value ---------------------------------------------------------------------------------------------------------


def test_it_is_a_value_that_is_stored_as_plain_data() -> None:
    trigger = cron("0 9 * * *", ["weekends", "12-25", date(2026, 5, 1)])
    data = trigger.to_data()
    assert data["exclude"] == {
        "weekly": [[432_000, 604_800]], "yearly": ["12-25"], "days": [["2026-05-01", "2026-05-01"]],
    }  # fmt: skip
    for twin in (trigger_from_data(data), pickle.loads(pickle.dumps(trigger)), cron("0 9 * * *", trigger.exclude)):
        assert (twin, hash(twin), str(twin)) == (trigger, hash(trigger), str(trigger))
    assert cron("0 9 * * *", "weekends") != trigger
    with pytest.raises(ValueError, match="these are not exclusions"):
        trigger_from_data({**data, "exclude": {"weekly": [[1, "x"]]}})


def test_jitter_and_end_are_those_of_the_plain_trigger() -> None:
    trigger = ExcludingTrigger(CronTrigger(hour=9, jitter=30, end_date="2026-05-10", timezone=BERLIN), "weekends")
    assert (trigger.jitter, trigger._last()) == (30, trigger.trigger._last())  # type: ignore[attr-defined]
    shown = trigger.get_next_fire_time(None, datetime(2026, 5, 4, tzinfo=UTC))
    assert shown is not None
    assert 0 <= (to_us(shown) - at("2026-05-04T07:00")) <= 30 * SECOND


def test_two_intervals_are_the_same_whenever_they_were_made() -> None:
    first = ExcludingTrigger(IntervalTrigger(hours=1, made_at=1, timezone="UTC"), "weekends")
    second = ExcludingTrigger(IntervalTrigger(hours=1, made_at=2, timezone="UTC"), "weekends")
    assert is_same_trigger(first, second)
    assert not is_same_trigger(first, ExcludingTrigger(second.trigger, "sat"))


def test_exclusions_are_kept_or_taken_away_with_another_trigger() -> None:
    before, other = cron("0 9 * * *", "weekends"), CronTrigger(hour=3, timezone=BERLIN)
    assert like(other, before) == ExcludingTrigger(other, "weekends")
    assert like(other, other) is other
    assert plain_trigger(before) == before.trigger


def test_a_preview_says_which_fires_are_left_out() -> None:
    job = Job("j", Call("m:f"), cron("0 9 * * *", ["weekends", "12-25"]), at=at("2026-12-23T08:00"))
    shown = preview(job, at("2026-12-23"), 4, UTC)
    assert [None if fire.note is None else fire.note.text for fire in shown] == [
        None, None, "3 fires from Fri 2026-12-25 09:00 on are excluded", None,
    ]  # fmt: skip
