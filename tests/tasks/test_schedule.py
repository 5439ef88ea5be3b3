"""schedule: which job each of django-q's types is."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from mainspring import Mainspring
from mainspring.core.job import Job
from mainspring.errors import ConflictingIdError, JobLookupError
from mainspring.tasks import FetchedTask, Schedule, fetch, get_broker, schedule
from tests.tasks import functions

BERLIN = ZoneInfo("Europe/Berlin")
SOON = 20_000


def fires(app: Mainspring, job: Job, number: int = 4) -> list[str]:
    return [f"{moment:%Y-%m-%d %H:%M}" for moment in app.preview(job, number)]


def first_run(app: Mainspring, name: str) -> FetchedTask:
    """Wait for the first run of a job and return it."""
    deadline = time.monotonic() + SOON / 1000
    while not (runs := app.find(job=name)) and time.monotonic() < deadline:
        time.sleep(0.005)
    task = fetch(runs[0].id, SOON)
    assert task is not None
    return task


@pytest.mark.parametrize(
    ("start", "kind", "expected"),
    [
        ("2027-03-27 02:10", Schedule.HOURLY, ["03-27 02:10", "03-27 03:10", "03-27 04:10"]),
        ("2027-03-27 09:30", Schedule.DAILY, ["03-27 09:30", "03-28 09:30", "03-29 09:30"]),
        ("2027-03-27 09:30", Schedule.WEEKLY, ["03-27 09:30", "04-03 09:30", "04-10 09:30"]),
        ("2027-03-27 09:30", Schedule.BIWEEKLY, ["03-27 09:30", "04-10 09:30", "04-24 09:30"]),
        ("2027-03-27 09:30", Schedule.MONTHLY, ["03-27 09:30", "04-27 09:30", "05-27 09:30"]),
        ("2027-01-31 09:30", Schedule.MONTHLY, ["01-31 09:30", "02-28 09:30", "03-31 09:30", "04-30 09:30"]),
        ("2027-01-30 09:30", Schedule.MONTHLY, ["01-30 09:30", "02-28 09:30", "03-30 09:30", "04-30 09:30"]),
        ("2028-01-29 09:30", Schedule.MONTHLY, ["01-29 09:30", "02-29 09:30", "03-29 09:30", "04-29 09:30"]),
        ("2027-12-31 09:30", Schedule.BIMONTHLY, ["12-31 09:30", "02-29 09:30", "04-30 09:30", "06-30 09:30"]),
        ("2027-01-31 09:30", Schedule.BIMONTHLY, ["01-31 09:30", "03-31 09:30", "05-31 09:30", "07-31 09:30"]),
        ("2027-05-31 09:30", Schedule.QUARTERLY, ["05-31 09:30", "08-31 09:30", "11-30 09:30", "02-29 09:30"]),
        ("2027-05-15 09:30", Schedule.QUARTERLY, ["05-15 09:30", "08-15 09:30", "11-15 09:30", "02-15 09:30"]),
        ("2027-05-15 09:30", Schedule.YEARLY, ["05-15 09:30", "05-15 09:30", "05-15 09:30"]),
        ("2028-02-29 09:30", Schedule.YEARLY, ["02-29 09:30", *["02-28 09:30"] * 3, "02-29 09:30"]),
    ],
)  # fmt: skip
def test_a_type_comes_due_at_its_times(app: Mainspring, start: str, kind: str, expected: list[str]) -> None:
    job = schedule(functions.nothing, schedule_type=kind, next_run=datetime.fromisoformat(start))
    assert [moment[5:] for moment in fires(app, job, len(expected))] == expected


def test_once_is_once(app: Mainspring) -> None:
    job = schedule(functions.nothing, next_run=datetime(2027, 1, 1, 12))
    assert fires(app, job) == ["2027-01-01 12:00"]


@pytest.mark.parametrize(("minutes", "second"), [(None, "12:01"), (1, "12:01"), (45, "12:45")])
def test_minutes_are_counted_from_the_first_run(app: Mainspring, minutes: int | None, second: str) -> None:
    job = schedule(
        functions.nothing, schedule_type=Schedule.MINUTES, minutes=minutes, next_run=datetime(2027, 1, 1, 12)
    )
    assert fires(app, job, 2) == ["2027-01-01 12:00", f"2027-01-01 {second}"]


def test_a_cron_schedule_comes_due_at_its_next_time(app: Mainspring) -> None:
    job = schedule(functions.nothing, schedule_type=Schedule.CRON, cron="30 9 * * 1-5")
    moments = app.preview(job, 10)
    assert {(moment.hour, moment.minute) for moment in moments} == {(9, 30)}
    assert {moment.isoweekday() for moment in moments} == {1, 2, 3, 4, 5}


def test_a_cron_schedule_may_be_given_its_first_run(app: Mainspring) -> None:
    job = schedule(
        functions.nothing, schedule_type=Schedule.CRON, cron="0 0 1 * *", next_run=datetime(2027, 1, 5, 7), repeats=3
    )
    assert fires(app, job) == ["2027-01-05 07:00", "2027-02-01 00:00", "2027-03-01 00:00"]


@pytest.mark.parametrize("kind", [Schedule.MINUTES, Schedule.DAILY, Schedule.MONTHLY, Schedule.YEARLY, Schedule.CRON])
@pytest.mark.parametrize("repeats", [1, 2, 5])
@pytest.mark.parametrize("day", [5, 31])
def test_repeats_are_how_often_it_runs(app: Mainspring, kind: str, repeats: int, day: int) -> None:
    job = schedule(
        functions.nothing, schedule_type=kind, cron="0 7 * * *", repeats=repeats, next_run=datetime(2027, 1, day, 12)
    )
    assert len(app.preview(job, 20)) == repeats


def test_a_time_in_another_zone_is_told_by_the_clock_of_the_app(app: Mainspring) -> None:
    start = datetime(2027, 3, 27, 8, 0, tzinfo=UTC)
    job = schedule(functions.nothing, schedule_type=Schedule.DAILY, next_run=start)
    assert fires(app, job, 2) == ["2027-03-27 09:00", "2027-03-28 09:00"]
    assert app.preview(job, 2)[1] - start == timedelta(hours=23)


def test_the_name_is_the_id_and_may_be_taken_once(app: Mainspring) -> None:
    start = datetime(2027, 1, 1, tzinfo=BERLIN)
    job = schedule(functions.add, 1, name="sum", b=2, next_run=start)
    assert (job.id, job.name, job.args, job.kwargs, job.next_run_time) == ("sum", "sum", (1,), {"b": 2}, start)
    with pytest.raises(ConflictingIdError):
        schedule(functions.add, 1, name="sum", next_run=start)


def test_options_are_those_of_a_call(app: Mainspring) -> None:
    job = schedule(
        "tests.tasks.functions.options",
        hook="tests.tasks.functions.report",
        cluster="mail",
        schedule_type=Schedule.HOURLY,
        own=1,
        timeout=5,
        q_options={"timeout": 60, "task_name": "shown", "retries": 2, "coalesce": False, "max_instances": 3},
    )
    assert (job.name, job.queue, job.kwargs) == ("shown", "mail", {"own": 1, "timeout": 5})
    assert (job.policy.timeout, job.policy.retries, job.policy.hook) == (60, 2, "tests.tasks.functions:report")
    assert (job.coalesce, job.max_instances) == (False, 3)


def test_a_schedule_runs_at_once_by_default_and_is_gone_after_its_last_run(working: Mainspring) -> None:
    schedule("tests.tasks.functions.add", 1, b=2, name="sum", hook=functions.report)
    task = first_run(working, "sum")
    assert (task.result, task.name) == (3, "sum")
    hook = fetch(f"{task.id}~hook", SOON)
    assert hook is not None
    assert hook.result == "sum True 3"
    with pytest.raises(JobLookupError):
        working.get_job("sum")


def test_a_schedule_whose_time_is_past_runs_at_once(working: Mainspring) -> None:
    start = datetime.now(BERLIN) - timedelta(days=3, minutes=10)
    schedule(functions.add, 1, name="late", schedule_type=Schedule.DAILY, next_run=start)
    assert first_run(working, "late").result == 1
    assert len(working.find(job="late")) == 1


@pytest.mark.parametrize("registered", [False, True])
def test_the_function_is_told_the_time_it_was_meant_for(working: Mainspring, registered: bool) -> None:
    start = datetime(2026, 1, 31, 9, 30, tzinfo=BERLIN)
    if registered:
        working.task(functions.dated)
    name = f"dated {registered}"
    schedule(functions.dated, 7, name=name, next_run=start, intended_date_kwarg="intended")
    task = first_run(working, name)
    assert task.result == [7, "2026-01-31T08:30:00+00:00"]
    assert (task.name, task.func, task.args) == (name, "tests.tasks.functions:dated", (7,))


def test_a_coroutine_function_is_told_the_time_it_was_meant_for(working: Mainspring) -> None:
    start = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
    schedule(functions.dated_async, name="async", next_run=start, intended_date_kwarg="intended")
    assert first_run(working, "async").result == "2026-01-31T09:30:00+00:00"


def test_a_schedule_is_executed_by_the_queue_of_its_cluster(app: Mainspring) -> None:
    app.start()
    schedule(functions.nothing, name="mail", cluster="mail")
    deadline = time.monotonic() + SOON / 1000
    while not get_broker("mail").queue_size() and time.monotonic() < deadline:
        time.sleep(0.005)
    [(_, run)] = get_broker("mail").dequeue()
    assert run.job_id == "mail"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"schedule_type": "X"}, "no schedule type 'X'"),
        ({"schedule_type": "MONTHLYY"}, "did you mean 'MONTHLY'"),
        ({"schedule_type": Schedule.CRON}, "needs cron="),
        ({"schedule_type": Schedule.CRON, "cron": "0 0 31 2 *"}, "never comes due"),
        ({"schedule_type": Schedule.CRON, "cron": "0 0 31"}, "3 fields, not 5"),
        ({"repeats": 0}, "repeats is -1"),
        ({"repeats": -2}, "repeats is -1"),
        ({"schedule_type": Schedule.MINUTES, "minutes": 0}, "minutes must be"),
        ({"intended_date_kwarg": "a b"}, "keyword argument"),
        ({"intended_date_kwarg": "when"}, "takes no argument 'when'"),
        ({"group": "g"}, "takes no group"),
        ({"chain": [functions.nothing]}, "takes no chain"),
        ({"q_options": {"delay": 5}}, "takes no delay"),
    ],
)
def test_what_is_wrong_with_a_schedule_is_said_where_it_is_written(
    app: Mainspring, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=complaint):
        schedule(functions.add, 1, **options)
    assert app.jobs() == []
