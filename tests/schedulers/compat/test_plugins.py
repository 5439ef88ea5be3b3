"""A user's own trigger, job store and executor, as they were written for APScheduler."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.schedulers.compat.functions import add
from tests.schedulers.compat.kit import LIMIT, Calls, Heard, Package, soon


def make_trigger(package: Package) -> Any:
    base = package.get("triggers.base:BaseTrigger")

    class Doubling(base):  # type: ignore[misc, valid-type]
        """Fires after 10 ms, then after twice as long each time, three times in all."""

        def __init__(self, timezone: Any = None) -> None:
            self.start = datetime.now(UTC)

        def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
            if previous_fire_time is None:
                return self.start + timedelta(milliseconds=10)
            step = (previous_fire_time - self.start) * 2
            return self.start + step if step <= timedelta(milliseconds=40) else None

        def __str__(self) -> str:
            return "doubling"

    return Doubling


def make_store(package: Package) -> Any:
    base = package.get("jobstores.base:BaseJobStore")
    errors = package.get("jobstores.base")

    class DictStore(base):  # type: ignore[misc, valid-type]
        """A dict behind APScheduler's eight methods."""

        def __init__(self) -> None:
            super().__init__()
            self.jobs: dict[str, Any] = {}
            self.lived: list[str] = []

        def start(self, scheduler: Any, alias: str) -> None:
            super().start(scheduler, alias)
            self.lived.append("start")

        def shutdown(self) -> None:
            self.lived.append("shutdown")

        def lookup_job(self, job_id: str) -> Any:
            return self.jobs.get(job_id)

        def get_due_jobs(self, now: datetime) -> list[Any]:
            return [job for job in self.get_all_jobs() if job.next_run_time and job.next_run_time <= now]

        def get_next_run_time(self) -> datetime | None:
            return min((job.next_run_time for job in self.jobs.values() if job.next_run_time), default=None)

        def get_all_jobs(self) -> list[Any]:
            jobs = sorted(self.jobs.values(), key=lambda job: job.next_run_time or datetime.max.replace(tzinfo=UTC))
            self._fix_paused_jobs_sorting(jobs)
            return jobs

        def add_job(self, job: Any) -> None:
            if job.id in self.jobs:
                raise errors.ConflictingIdError(job.id)
            self.jobs[job.id] = job

        def update_job(self, job: Any) -> None:
            if job.id not in self.jobs:
                raise errors.JobLookupError(job.id)
            self.jobs[job.id] = job

        def remove_job(self, job_id: str) -> None:
            if job_id not in self.jobs:
                raise errors.JobLookupError(job_id)
            del self.jobs[job_id]

        def remove_all_jobs(self) -> None:
            self.jobs.clear()

    return DictStore


def make_executor(package: Package) -> Any:
    base = package.get("executors.base:BaseExecutor")
    run_job = package.get("executors.base:run_job")

    class Inline(base):  # type: ignore[misc, valid-type]
        """Runs a job where it is submitted."""

        def __init__(self) -> None:
            super().__init__()
            self.lived: list[Any] = []

        def start(self, scheduler: Any, alias: str) -> None:
            super().start(scheduler, alias)
            self.lived.append(alias)

        def shutdown(self, wait: bool = True) -> None:
            self.lived.append(wait)

        def _do_submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
            try:
                events = run_job(job, job._jobstore_alias, run_times, self._logger.name)
            except BaseException:
                self._run_job_error(job.id, *sys.exc_info()[1:])
            else:
                self._run_job_success(job.id, events)

    return Inline


def with_store(package: Package) -> tuple[Any, Any]:
    store = make_store(package)()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        scheduler = package.scheduler(jobstores={"default": store})
    return scheduler, store


def test_a_trigger_of_the_users_own_fires_until_it_ends(package: Package) -> None:
    scheduler, calls = package.started(), Calls()
    heard = Heard(scheduler)
    trigger = make_trigger(package)()
    job = scheduler.add_job(calls, trigger, misfire_grace_time=None, coalesce=False, max_instances=3)
    assert "(trigger: doubling, next run at: " in str(job)
    heard.wait(package.events.EVENT_JOB_REMOVED)
    calls.wait(3)
    assert scheduler.get_jobs() == []


def test_a_trigger_of_the_users_own_by_its_import_path(ours: Package) -> None:
    job = ours.scheduler().add_job(add, "tests.schedulers.compat.own_trigger:Never", [1], colour="red")
    assert (type(job.trigger).__name__, job.trigger.colour) == ("Never", "red")


def test_a_store_of_the_users_own_keeps_the_jobs(package: Package) -> None:
    scheduler, store = with_store(package)
    scheduler.start()
    scheduler.add_job(add, "interval", [1], id="later", hours=2)
    scheduler.add_job(add, "interval", [1], id="paused", hours=1, next_run_time=None)
    scheduler.add_job(add, "interval", [1], id="sooner", hours=1)
    assert [job.id for job in scheduler.get_jobs()] == ["sooner", "later", "paused"]
    assert set(store.jobs) == {"later", "paused", "sooner"}
    scheduler.modify_job("later", name="changed", next_run_time=soon(60))
    assert store.jobs["later"].name == "changed"
    scheduler.remove_job("sooner")
    assert set(store.jobs) == {"later", "paused"}
    scheduler.remove_all_jobs()
    assert store.jobs == {}
    scheduler.shutdown()
    assert store.lived == ["start", "shutdown"]


def test_jobs_of_a_store_of_the_users_own_are_fired(package: Package) -> None:
    scheduler, store = with_store(package)
    calls, once = Calls(), Calls()
    scheduler.add_job(calls, "interval", id="often", seconds=0.05)
    scheduler.add_job(once, id="once")
    scheduler.start()
    calls.wait(3)
    once.wait()
    before = store.jobs["often"].next_run_time
    calls.wait(len(calls.made) + 2)
    assert store.jobs["often"].next_run_time > before
    assert "once" not in store.jobs
    assert len(once.made) == 1


def test_a_fire_that_a_store_of_the_users_own_does_not_take_delays_no_other(
    ours: Package, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler, store = with_store(ours)
    good, bad, once, looks = Calls(), Calls(), Calls(), Calls()
    get_due_jobs, update_job, remove_job = store.get_due_jobs, store.update_job, store.remove_job

    def look(now: datetime) -> Any:
        looks()
        return get_due_jobs(now)

    def refuse(job: Any) -> None:
        if job == "once" or job.id == "bad":
            raise RuntimeError("the disk is full")
        update_job(job)

    monkeypatch.setattr(store, "get_due_jobs", look)
    monkeypatch.setattr(store, "update_job", refuse)
    monkeypatch.setattr(store, "remove_job", refuse)
    scheduler.start(paused=True)
    at = soon(0)
    scheduler.add_job(once, id="once", next_run_time=at)
    scheduler.add_job(bad, "interval", id="bad", hours=1, next_run_time=at)
    scheduler.add_job(good, "interval", id="good", seconds=0.1, next_run_time=at)
    scheduler.resume()
    good.wait(25)  # until the writes have been repeated
    assert len(looks.made) < 200
    assert scheduler.get_job("bad").next_run_time == at + timedelta(hours=1)
    assert [record.message for record in caplog.records if record.exc_info is not None] == [
        f"job {name!r} has fired, but its store did not take that; trying again" for name in ("once", "bad")
    ]
    monkeypatch.setattr(store, "update_job", update_job)
    monkeypatch.setattr(store, "remove_job", remove_job)
    deadline = time.monotonic() + LIMIT
    while ("once" in store.jobs or store.jobs["bad"].next_run_time == at) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert store.jobs["bad"].next_run_time == at + timedelta(hours=1)
    assert "once" not in store.jobs
    assert (len(bad.made), len(once.made)) == (1, 1)


def test_a_taken_id_and_a_missing_one_are_errors_in_a_store_of_the_users_own(package: Package) -> None:
    scheduler, store = with_store(package)
    scheduler.start()
    scheduler.add_job(add, "interval", [1], id="sum", hours=1)
    with pytest.raises(package.get("jobstores.base:ConflictingIdError")):
        scheduler.add_job(add, "interval", [2], id="sum", hours=1)
    scheduler.add_job(add, "interval", [3], id="sum", hours=1, replace_existing=True)
    assert tuple(store.jobs["sum"].args) == (3,)
    with pytest.raises(package.get("jobstores.base:JobLookupError")):
        scheduler.remove_job("nothing")


def test_jobs_that_were_in_a_store_of_the_users_own_before_are_fired(ours: Package) -> None:
    first, store = with_store(ours)
    calls = Calls()
    first.start(paused=True)
    first.add_job(calls, id="kept", misfire_grace_time=None)
    first.shutdown()
    assert set(store.jobs) == {"kept"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        ours.started(jobstores={"default": store})
    calls.wait()


def test_a_store_with_the_eight_methods_only_is_warned_about(ours: Package) -> None:
    store = make_store(ours)()
    with pytest.warns(RuntimeWarning, match="DictStore has APScheduler's eight methods only: use it from one process"):
        ours.scheduler(jobstores={"default": store})
    with pytest.warns(RuntimeWarning, match="one process"):
        ours.scheduler().add_jobstore(make_store(ours)(), "other")


def test_an_executor_of_the_users_own_executes(package: Package) -> None:
    executor = make_executor(package)()
    scheduler = package.started(executors={"default": executor})
    heard = Heard(scheduler)
    scheduler.add_job(add, args=[1], id="sum")
    assert heard.wait(package.events.EVENT_JOB_EXECUTED, job_id="sum").retval == 3
    heard.wait(package.events.EVENT_JOB_REMOVED)
    scheduler.shutdown()
    assert executor.lived == ["default", True]


def test_an_executor_of_the_users_own_reports_errors(package: Package) -> None:
    scheduler = package.started(executors={"default": make_executor(package)()})
    heard = Heard(scheduler)
    scheduler.add_job(lambda: 1 / 0, id="bad")
    event = heard.wait(package.events.EVENT_JOB_ERROR, job_id="bad")
    assert isinstance(event.exception, ZeroDivisionError)


def test_an_executor_of_the_users_own_that_refuses_fails_the_run(ours: Package) -> None:
    class Refusing(make_executor(ours)):  # type: ignore[misc]
        def _do_submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
            raise OSError("no room")

    scheduler = ours.started(executors={"default": Refusing()})
    heard = Heard(scheduler)
    scheduler.add_job(add, args=[1], id="sum")
    assert str(heard.wait(ours.events.EVENT_JOB_ERROR, job_id="sum").exception) == "no room"


def test_submit_job_runs_a_job_at_once(package: Package) -> None:
    scheduler = package.started()
    heard = Heard(scheduler)
    executor = package.get("executors.pool:ThreadPoolExecutor")(1)
    scheduler.add_executor(executor, "spare")
    job = scheduler.add_job(add, "interval", [1], id="sum", hours=1)
    moment = datetime.now(UTC)
    executor.submit_job(job, [moment])
    event = heard.wait(package.events.EVENT_JOB_EXECUTED, job_id="sum")
    assert (event.retval, event.scheduled_run_time) == (3, moment)
