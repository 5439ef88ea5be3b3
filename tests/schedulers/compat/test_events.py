"""Events: the same codes, masks, attributes and order."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.schedulers.compat.functions import add
from tests.schedulers.compat.kit import Calls, Heard, Package, wait_for

NAMES = [
    "SCHEDULER_STARTED",
    "SCHEDULER_SHUTDOWN",
    "SCHEDULER_PAUSED",
    "SCHEDULER_RESUMED",
    "EXECUTOR_ADDED",
    "EXECUTOR_REMOVED",
    "JOBSTORE_ADDED",
    "JOBSTORE_REMOVED",
    "ALL_JOBS_REMOVED",
    "JOB_ADDED",
    "JOB_REMOVED",
    "JOB_MODIFIED",
    "JOB_EXECUTED",
    "JOB_ERROR",
    "JOB_MISSED",
    "JOB_SUBMITTED",
    "JOB_MAX_INSTANCES",
]


def test_the_codes_are_the_powers_of_two_in_order(package: Package) -> None:
    assert [getattr(package.events, f"EVENT_{name}") for name in NAMES] == [2**n for n in range(17)]
    assert package.events.EVENT_SCHEDULER_START == package.events.EVENT_SCHEDULER_STARTED
    assert package.events.EVENT_ALL & (2**17 - 1) == 2**17 - 1


def test_events_can_be_made_with_the_same_arguments(package: Package) -> None:
    events, moment = package.events, datetime.now(UTC)
    event = events.JobExecutionEvent(events.EVENT_JOB_EXECUTED, "j", "default", moment, 1, None, None)
    assert (event.code, event.job_id, event.jobstore, event.scheduled_run_time) == (2**12, "j", "default", moment)
    assert (event.retval, event.exception, event.traceback, event.alias) == (1, None, None, None)
    assert events.JobSubmissionEvent(2**15, "j", "default", [moment]).scheduled_run_times == [moment]
    assert events.SchedulerEvent(2**4, "default").alias == "default"
    assert issubclass(events.JobExecutionEvent, events.JobEvent)
    assert issubclass(events.JobEvent, events.SchedulerEvent)


def test_life_is_told_in_order(package: Package) -> None:
    events, scheduler = package.events, package.scheduler()
    heard = Heard(scheduler, 15)
    scheduler.start()
    scheduler.pause()
    scheduler.resume()
    scheduler.shutdown()
    assert heard.codes() == [
        events.EVENT_SCHEDULER_STARTED,
        events.EVENT_SCHEDULER_PAUSED,
        events.EVENT_SCHEDULER_RESUMED,
        events.EVENT_SCHEDULER_SHUTDOWN,
    ]


def test_the_start_is_told_before_the_first_fire(package: Package) -> None:
    scheduler = package.scheduler()
    heard = Heard(scheduler)
    for _ in range(20):
        scheduler.add_job(add, args=[1])
    scheduler.start()
    heard.wait(package.events.EVENT_JOB_EXECUTED, 20)
    codes = heard.codes()
    started = codes.index(package.events.EVENT_SCHEDULER_STARTED)
    assert started < codes.index(package.events.EVENT_JOB_SUBMITTED)
    assert started < codes.index(package.events.EVENT_JOB_EXECUTED)


def test_the_default_store_and_executor_that_start_makes_are_told(package: Package) -> None:
    events, scheduler = package.events, package.scheduler()
    heard = Heard(scheduler, events.EVENT_EXECUTOR_ADDED | events.EVENT_JOBSTORE_ADDED)
    scheduler.start()
    assert {(event.code, event.alias) for event in heard.events} == {
        (events.EVENT_EXECUTOR_ADDED, "default"),
        (events.EVENT_JOBSTORE_ADDED, "default"),
    }


def test_stores_and_executors_that_come_and_go_are_told(package: Package) -> None:
    events, scheduler = package.events, package.started()
    heard = Heard(scheduler)
    scheduler.add_executor("threadpool", "spare")
    scheduler.add_jobstore("memory", "other")
    scheduler.remove_jobstore("other")
    scheduler.remove_executor("spare")
    assert [(event.code, event.alias) for event in heard.events] == [
        (events.EVENT_EXECUTOR_ADDED, "spare"),
        (events.EVENT_JOBSTORE_ADDED, "other"),
        (events.EVENT_JOBSTORE_REMOVED, "other"),
        (events.EVENT_EXECUTOR_REMOVED, "spare"),
    ]


def test_changes_of_a_job_are_told(package: Package) -> None:
    events, scheduler = package.events, package.started()
    heard = Heard(scheduler)
    job = scheduler.add_job(add, "interval", [1], id="sum", hours=1)
    job.modify(name="x")
    job.pause()
    job.resume()
    job.reschedule("interval", hours=2)
    job.remove()
    scheduler.remove_all_jobs("default")
    assert [(event.code, getattr(event, "job_id", None)) for event in heard.events] == [
        (events.EVENT_JOB_ADDED, "sum"),
        *[(events.EVENT_JOB_MODIFIED, "sum")] * 4,
        (events.EVENT_JOB_REMOVED, "sum"),
        (events.EVENT_ALL_JOBS_REMOVED, None),
    ]
    assert {event.jobstore for event in heard.events[:-1]} == {"default"}
    assert heard.events[-1].alias == "default"


def test_a_run_that_returns_is_told_with_its_value_and_time(package: Package) -> None:
    events, scheduler = package.events, package.started()
    heard = Heard(scheduler)
    due = datetime.now(UTC)
    scheduler.add_job(add, "date", [1], {"b": 5}, "sum", run_date=due)
    submitted = heard.wait(events.EVENT_JOB_SUBMITTED)
    assert (submitted.job_id, submitted.jobstore, submitted.scheduled_run_times) == ("sum", "default", [due])
    executed = heard.wait(events.EVENT_JOB_EXECUTED)
    assert (executed.job_id, executed.jobstore, executed.scheduled_run_time) == ("sum", "default", due)
    assert (executed.retval, executed.exception, executed.traceback) == (6, None, None)
    assert heard.wait(events.EVENT_JOB_REMOVED).job_id == "sum"


def test_a_run_that_raises_is_told_with_exception_and_traceback(package: Package) -> None:
    events, scheduler = package.events, package.started()
    heard = Heard(scheduler, events.EVENT_JOB_ERROR)

    def break_it() -> None:
        raise KeyError("broken")

    scheduler.add_job(break_it, id="bad")
    event = heard.wait(events.EVENT_JOB_ERROR)
    assert event.job_id == "bad"
    assert isinstance(event.exception, KeyError)
    assert event.retval is None
    assert 'raise KeyError("broken")' in event.traceback


def test_a_fire_past_its_grace_is_told_as_missed(package: Package) -> None:
    events, scheduler = package.events, package.started()
    heard, calls = Heard(scheduler), Calls()
    due = datetime.now(UTC) - timedelta(seconds=30)
    scheduler.add_job(calls, "date", run_date=due, id="late", misfire_grace_time=5)
    event = heard.wait(events.EVENT_JOB_MISSED)
    assert (event.job_id, event.jobstore, event.scheduled_run_time) == ("late", "default", due)
    assert calls.made == []


def test_a_fire_above_max_instances_is_told_with_its_times(package: Package) -> None:
    events, scheduler = package.events, package.started()
    heard, go_on, began = Heard(scheduler), threading.Event(), threading.Event()

    def hold() -> None:
        began.set()
        wait_for(go_on)

    scheduler.add_job(hold, "interval", seconds=0.1, id="slow", next_run_time=datetime.now(UTC))
    wait_for(began)
    event = heard.wait(events.EVENT_JOB_MAX_INSTANCES)
    go_on.set()
    assert (event.job_id, event.jobstore, len(event.scheduled_run_times)) == ("slow", "default", 1)
    assert event.scheduled_run_times[0].tzinfo is not None


def test_a_listener_hears_only_its_mask(package: Package) -> None:
    events, scheduler = package.events, package.started()
    all_of_it = Heard(scheduler)
    some = Heard(scheduler, events.EVENT_JOB_ADDED | events.EVENT_JOB_REMOVED)
    job = scheduler.add_job(add, "interval", [1], hours=1)
    job.pause()
    job.remove()
    assert some.codes() == [events.EVENT_JOB_ADDED, events.EVENT_JOB_REMOVED]
    assert len(all_of_it.codes()) == 3


def test_a_removed_listener_hears_nothing_more(package: Package) -> None:
    scheduler = package.started()
    heard = Heard(scheduler)
    scheduler.add_job(add, "interval", [1], hours=1)
    scheduler.remove_listener(heard)
    scheduler.remove_all_jobs()
    assert heard.codes() == [package.events.EVENT_JOB_ADDED]


def test_a_listener_that_raises_is_logged_and_harms_nobody(package: Package, caplog: pytest.LogCaptureFixture) -> None:
    scheduler = package.started()

    def break_it(event: Any) -> None:
        raise RuntimeError("the listener is broken")

    scheduler.add_listener(break_it)
    heard = Heard(scheduler)
    with caplog.at_level(logging.ERROR):
        scheduler.add_job(add, args=[1])
        heard.wait(package.events.EVENT_JOB_EXECUTED)
    assert "the listener is broken" in caplog.text


def test_a_listener_may_change_jobs(package: Package) -> None:
    events, scheduler = package.events, package.started()
    calls = Calls()
    scheduler.add_listener(lambda event: scheduler.add_job(calls, id="next"), events.EVENT_JOB_EXECUTED)
    heard = Heard(scheduler)
    scheduler.add_job(add, args=[1], id="first")
    heard.wait(events.EVENT_JOB_EXECUTED, job_id="first")
    calls.wait()


def test_overdue_fires_that_are_not_coalesced_are_one_submission_of_many_times(package: Package) -> None:
    events, scheduler = package.events, package.scheduler()
    heard = Heard(scheduler)
    start = datetime.now(UTC) - timedelta(seconds=35)
    scheduler.add_job(
        add,
        "interval",
        [1],
        id="many",
        seconds=10,
        start_date=start,
        next_run_time=start,
        coalesce=False,
        misfire_grace_time=None,
    )
    scheduler.start()
    heard.wait(events.EVENT_JOB_EXECUTED, 4)
    times = [start + timedelta(seconds=10 * n) for n in range(4)]
    assert heard.wait(events.EVENT_JOB_SUBMITTED).scheduled_run_times == times
    done = [event.scheduled_run_time for event in heard.events if event.code == events.EVENT_JOB_EXECUTED]
    assert done == times


def test_overdue_fires_are_coalesced_into_the_latest(package: Package) -> None:
    events, scheduler = package.events, package.scheduler()
    heard, calls = Heard(scheduler), Calls()
    start = datetime.now(UTC) - timedelta(seconds=35)
    options: dict[str, Any] = {"coalesce": True, "misfire_grace_time": None}
    scheduler.add_job(calls, "interval", seconds=10, start_date=start, next_run_time=start, **options)
    scheduler.start()
    event = heard.wait(events.EVENT_JOB_EXECUTED)
    assert event.scheduled_run_time == start + timedelta(seconds=30)
    assert len(calls.made) == 1
