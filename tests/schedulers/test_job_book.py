"""The verbs of the job book that APScheduler does not have: run now, skip the next fire, preview."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from mainspring.core.run import Status
from mainspring.core.showing.run_view import RunView
from mainspring.errors import JobLookupError, MaxInstancesReachedError, SchedulerNotRunningError, UnknownAlias
from mainspring.events import EVENT_JOB_EXECUTED, EVENT_JOB_MODIFIED
from mainspring.schedulers.background import BackgroundScheduler
from tests.schedulers.compat.kit import Calls, Heard

FAR = datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def scheduler() -> Iterator[BackgroundScheduler]:
    with BackgroundScheduler(timezone="UTC") as made:
        yield made


def test_a_job_runs_now_besides_its_schedule(scheduler: BackgroundScheduler) -> None:
    calls, heard = Calls(), Heard(scheduler)
    job = scheduler.add_job(calls, "interval", hours=1, id="it", next_run_time=FAR)
    run = scheduler.run_now("it")
    assert isinstance(run, RunView)
    assert (run.job_id, run.status) == ("it", Status.PENDING)
    heard.wait(EVENT_JOB_EXECUTED)
    (found,) = scheduler.get_runs("it")
    assert (found.id, found.status, found.result) == (run.id, Status.SUCCEEDED, 1)
    assert job.next_run_time == FAR


def test_a_job_runs_now_in_the_store_that_it_is_in(scheduler: BackgroundScheduler) -> None:
    calls, heard = Calls(), Heard(scheduler)
    scheduler.add_jobstore("memory", "other")
    scheduler.add_job(calls, "interval", hours=1, id="it", jobstore="other")
    run = scheduler.run_now("it")
    heard.wait(EVENT_JOB_EXECUTED)
    assert [found.id for found in scheduler.get_runs(jobstore="other")] == [run.id]
    with pytest.raises(JobLookupError):
        scheduler.run_now("it", "default")
    with pytest.raises(UnknownAlias, match="'othr'"):
        scheduler.run_now("it", "othr")


def test_a_job_does_not_run_now_above_its_max_instances() -> None:
    with BackgroundScheduler(timezone="UTC") as scheduler:
        scheduler.pause()
        scheduler.add_job(len, "interval", args=["it"], hours=1, id="it")
        scheduler.run_now("it")
        with pytest.raises(MaxInstancesReachedError):
            scheduler.run_now("it")
        assert len(scheduler.get_runs("it")) == 1
        scheduler.resume()


def test_a_pending_job_cannot_run_now() -> None:
    scheduler = BackgroundScheduler(timezone="UTC")
    scheduler.add_job(len, "interval", args=["it"], hours=1, id="it")
    with pytest.raises(SchedulerNotRunningError):
        scheduler.run_now("it")


def test_the_next_fire_of_a_job_can_be_skipped(scheduler: BackgroundScheduler) -> None:
    heard = Heard(scheduler, EVENT_JOB_MODIFIED)
    scheduler.add_job(len, "interval", hours=1, args=["it"], id="it", next_run_time=FAR)
    assert scheduler.skip_next("it").next_run_time == FAR + timedelta(hours=1)
    assert [event.job_id for event in heard.events] == ["it"]
    assert scheduler.get_runs() == []


@pytest.mark.parametrize(
    ("state", "reason"), [("paused", "is paused"), ("last", "is its last"), ("pending", "when the scheduler starts")]
)
def test_a_fire_that_is_not_there_cannot_be_skipped(state: str, reason: str) -> None:
    scheduler = BackgroundScheduler(timezone="UTC")
    if state != "pending":
        scheduler.start()
    if state == "last":
        scheduler.add_job(len, "date", args=["it"], run_date=FAR, id="it")
    else:
        scheduler.add_job(len, "interval", args=["it"], hours=1, id="it")
    if state == "paused":
        scheduler.pause_job("it")
    with pytest.raises(ValueError, match=reason):
        scheduler.skip_next("it")
    if scheduler.running:
        scheduler.shutdown()


def test_the_next_fires_of_a_job_are_shown_before_they_happen(scheduler: BackgroundScheduler) -> None:
    scheduler.add_job(len, "interval", args=["it"], hours=1, id="it", next_run_time=FAR)
    assert scheduler.preview("it", 3) == [FAR + timedelta(hours=n) for n in range(3)]
    assert len(scheduler.preview("it")) == 10


def test_the_next_fires_of_a_pending_job_are_shown() -> None:
    scheduler = BackgroundScheduler(timezone="UTC")
    scheduler.add_job(len, "cron", args=["it"], hour=5, id="it")
    assert [moment.hour for moment in scheduler.preview("it", 2)] == [5, 5]


def test_a_job_is_named_by_itself_too(scheduler: BackgroundScheduler) -> None:
    job = scheduler.add_job(len, "interval", args=["it"], hours=1)
    assert scheduler.run_now(job).job_id == job.id
    assert scheduler.preview(job, 1) == [job.next_run_time]


def test_a_scheduler_takes_no_queue_that_could_not_be_served(scheduler: BackgroundScheduler) -> None:
    with pytest.raises(ValueError, match="cannot name a queue"):
        scheduler.add_job(len, "interval", args=["it"], hours=1, executor="queue", queue=".threads")


def test_past_fires_of_a_job_are_listed_and_run_one_after_another() -> None:
    scheduler = BackgroundScheduler(timezone="UTC")
    done: list[int] = []
    scheduler.add_job(lambda: done.append(1), "cron", hour=3, id="nightly", exclude="2026-05-02")
    scheduler.start()
    try:
        span = datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 5, 4, tzinfo=UTC)
        listed = scheduler.backfill("nightly", *span, trial=True)
        assert ([moment.day for moment in listed.fires], listed.known, listed.run) == ([1, 3], [], None)
        assert scheduler.backfill("nightly", *span).run is not None
        deadline = time.monotonic() + 30
        while len(done) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        again = scheduler.backfill("nightly", *span)
        assert (again.fires, [moment.day for moment in again.known], again.run) == ([], [1, 3], None)
    finally:
        scheduler.shutdown()
