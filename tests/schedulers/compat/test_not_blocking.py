"""What is waited for may call the scheduler meanwhile, whatever it is waited for."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from tests.schedulers.compat.functions import add
from tests.schedulers.compat.kit import LIMIT, Calls, Heard, Package, in_time, soon, wait_for

STARTED = threading.Event()
GO_ON = threading.Event()


def hold() -> None:
    """Run until a test lets it end; a function of a module, so that a lasting store can name it."""
    STARTED.set()
    wait_for(GO_ON)


def test_a_store_can_be_removed_while_its_job_calls_the_scheduler(ours: Package) -> None:
    scheduler, ended = ours.started(), threading.Event()
    began = threading.Event()

    def work() -> None:
        began.set()
        deadline = time.monotonic() + LIMIT
        while "other" in scheduler._jobstores and time.monotonic() < deadline:
            time.sleep(0.001)
        scheduler.get_jobs()
        scheduler.add_job(add, "date", args=[1], run_date=soon())
        ended.set()

    scheduler.add_jobstore("memory", "other")
    scheduler.add_job(work, jobstore="other")
    wait_for(began)
    in_time(lambda: scheduler.remove_jobstore("other"))
    assert ended.is_set()
    assert len(scheduler.get_jobs()) == 1


def test_a_store_can_be_removed_while_its_jobs_come_due_all_the_time(ours: Package) -> None:
    scheduler, calls = ours.started(), Calls()

    def work() -> None:
        calls()
        time.sleep(0.1)

    scheduler.add_jobstore("memory", "other")
    scheduler.add_job(work, "interval", seconds=0.03, max_instances=4, jobstore="other")
    calls.wait(5)
    in_time(lambda: scheduler.remove_jobstore("other"))


def test_a_job_may_remove_the_store_it_comes_from(ours: Package) -> None:
    scheduler, calls = ours.started(), Calls()

    def work() -> None:
        scheduler.remove_jobstore("other")
        calls()

    scheduler.add_jobstore("memory", "other")
    scheduler.add_job(work, jobstore="other")
    calls.wait()
    scheduler.add_jobstore("memory", "other")
    scheduler.add_job(calls, jobstore="other")
    calls.wait(2)


def test_a_job_may_remove_the_executor_it_is_executed_by(ours: Package) -> None:
    scheduler, calls = ours.started(), Calls()

    def work() -> None:
        scheduler.remove_executor("spare")
        calls()

    scheduler.add_executor("threadpool", "spare")
    scheduler.add_job(work, executor="spare")
    calls.wait()


def test_what_a_removed_store_has_not_started_is_given_back_to_it(ours: Package, tmp_path: Path) -> None:
    STARTED.clear()
    GO_ON.clear()
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    scheduler = ours.started(executors={"default": {"type": "threadpool", "max_workers": 1}})
    heard = Heard(scheduler, ours.events.EVENT_JOB_SUBMITTED)
    scheduler.add_jobstore(url, "other")
    scheduler.add_job(hold, jobstore="other", id="first")
    wait_for(STARTED)
    scheduler.add_job(add, args=[1], jobstore="other", id="second")
    heard.wait(ours.events.EVENT_JOB_SUBMITTED, job_id="second")
    threading.Timer(0.2, GO_ON.set).start()
    in_time(lambda: scheduler.remove_jobstore("other"))
    executed = Heard(scheduler, ours.events.EVENT_JOB_EXECUTED)  # before the run can be claimed again
    scheduler.add_jobstore(url, "again")
    executed.wait(ours.events.EVENT_JOB_EXECUTED, job_id="second")
    assert [event.job_id for event in executed.events] == ["second"]


def test_a_scheduler_starts_again_while_a_job_of_its_earlier_life_calls_it(ours: Package) -> None:
    scheduler, calls = ours.started(), Calls()
    began, go_on = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        wait_for(go_on)
        scheduler.add_job(calls)

    scheduler.add_job(work)
    wait_for(began)
    scheduler.shutdown(wait=False)
    threading.Timer(0.2, go_on.set).start()
    in_time(scheduler.start)
    calls.wait()
