"""Starting, pausing, shutting down; stores and executors that come and go meanwhile."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.schedulers.compat.functions import add
from tests.schedulers.compat.kit import LIMIT, Calls, Heard, Package, in_time, wait_for


def test_the_states_are_numbered_alike(package: Package) -> None:
    base = package.get("schedulers.base")
    assert (base.STATE_STOPPED, base.STATE_RUNNING, base.STATE_PAUSED) == (0, 1, 2)


def test_the_state_follows_the_verbs(package: Package) -> None:
    scheduler = package.scheduler()
    seen = [(scheduler.state, scheduler.running)]
    for verb in ("start", "pause", "resume", "shutdown"):
        getattr(scheduler, verb)()
        seen.append((scheduler.state, scheduler.running))
    assert seen == [(0, False), (1, True), (2, True), (1, True), (0, False)]


def test_a_scheduler_started_paused_fires_nothing_until_resumed(package: Package) -> None:
    scheduler, calls = package.scheduler(), Calls()
    scheduler.start(paused=True)
    assert scheduler.state == 2
    scheduler.add_job(calls, misfire_grace_time=None)
    assert len(scheduler.get_jobs()) == 1
    assert calls.made == []
    scheduler.resume()
    calls.wait()


def test_a_paused_scheduler_fires_nothing_until_resumed(package: Package) -> None:
    scheduler, calls = package.started(), Calls()
    scheduler.pause()
    scheduler.add_job(calls, misfire_grace_time=None)
    assert calls.made == []
    scheduler.resume()
    calls.wait()


def test_starting_twice_is_an_error(package: Package) -> None:
    scheduler = package.started()
    with pytest.raises(package.get("schedulers:SchedulerAlreadyRunningError")):
        scheduler.start()
    with pytest.raises(package.get("schedulers:SchedulerAlreadyRunningError")):
        scheduler.configure(timezone="UTC")
    assert scheduler.running


def test_shutting_down_or_pausing_what_is_stopped_is_an_error(package: Package) -> None:
    scheduler = package.scheduler()
    for verb in ("shutdown", "pause", "resume"):
        with pytest.raises(package.get("schedulers:SchedulerNotRunningError")):
            getattr(scheduler, verb)()


def test_shutdown_waits_for_what_runs(package: Package) -> None:
    scheduler = package.started()
    heard = Heard(scheduler, package.events.EVENT_JOB_REMOVED)
    began, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        wait_for(go_on)
        ended.set()

    scheduler.add_job(work)
    wait_for(began)
    heard.wait(package.events.EVENT_JOB_REMOVED)
    threading.Timer(0.1, go_on.set).start()
    in_time(scheduler.shutdown)
    assert ended.is_set()


def test_shutdown_without_waiting_returns_while_a_job_runs(package: Package) -> None:
    scheduler = package.started()
    heard = Heard(scheduler, package.events.EVENT_JOB_REMOVED)
    began, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        wait_for(go_on)
        ended.set()

    scheduler.add_job(work)
    wait_for(began)
    heard.wait(package.events.EVENT_JOB_REMOVED)
    in_time(lambda: scheduler.shutdown(wait=False))
    assert not ended.is_set()
    assert not scheduler.running
    go_on.set()
    wait_for(ended)


def test_shutdown_without_waiting_from_inside_a_job(ours: Package) -> None:
    scheduler = ours.scheduler()
    heard, done = Heard(scheduler), threading.Event()

    def stop() -> None:
        scheduler.shutdown(wait=False)
        done.set()

    scheduler.add_job(stop)
    scheduler.start()
    wait_for(done)
    heard.wait(ours.events.EVENT_SCHEDULER_SHUTDOWN)
    assert not scheduler.running


def test_shutdown_from_inside_a_job_does_not_wait_for_itself(ours: Package) -> None:
    scheduler = ours.scheduler()
    heard, done = Heard(scheduler), threading.Event()

    def stop() -> str:
        scheduler.shutdown()
        done.set()
        return "stopped"

    scheduler.add_job(stop)
    scheduler.start()
    wait_for(done)
    assert heard.wait(ours.events.EVENT_JOB_EXECUTED).retval == "stopped"
    assert not scheduler.running


def test_shutdown_from_a_listener_does_not_wait_for_itself(ours: Package) -> None:
    scheduler = ours.scheduler()
    done = threading.Event()

    def stop(event: Any) -> None:
        scheduler.shutdown()
        done.set()

    scheduler.add_listener(stop, ours.events.EVENT_JOB_EXECUTED)
    scheduler.add_job(add, args=[1])
    scheduler.start()
    wait_for(done)


def test_shutdown_lets_what_waits_in_memory_run(ours: Package) -> None:
    scheduler = ours.scheduler(executors={"default": {"type": "threadpool", "max_workers": 1}})
    heard, began, go_on, calls = Heard(scheduler), threading.Event(), threading.Event(), Calls()

    def hold() -> None:
        began.set()
        wait_for(go_on)

    scheduler.start()
    scheduler.add_job(hold)
    wait_for(began)
    for _ in range(5):
        scheduler.add_job(calls)
    heard.wait(ours.events.EVENT_JOB_SUBMITTED, 6)
    threading.Timer(0.1, go_on.set).start()
    in_time(scheduler.shutdown)
    assert len(calls.made) == 5


def test_after_shutdown_nothing_is_fired(package: Package) -> None:
    scheduler, calls = package.started(), Calls()
    scheduler.add_job(calls, "interval", seconds=0.05)
    calls.wait(1)
    scheduler.shutdown()
    count = len(calls.made)
    assert not threading.Event().wait(0.2)
    assert len(calls.made) == count


def test_a_scheduler_can_run_again(ours: Package) -> None:
    scheduler, calls = ours.started(), Calls()
    for count in range(1, 4):
        scheduler.add_job(calls)
        calls.wait(count)
        scheduler.shutdown()
        scheduler.start()


def test_a_scheduler_that_runs_again_has_its_jobs_again(ours: Package) -> None:
    store = ours.get("jobstores.memory:MemoryJobStore")()
    scheduler = ours.started(jobstores={"default": store})
    scheduler.add_job(add, "interval", [1], id="sum", hours=1)
    scheduler.shutdown()
    scheduler.start()
    assert [job.id for job in scheduler.get_jobs()] == ["sum"]
    scheduler.shutdown()
    another = ours.started(jobstores={"default": store})
    assert [job.id for job in another.get_jobs()] == ["sum"]


def test_jobs_added_between_two_lives_are_pending_in_between(ours: Package) -> None:
    scheduler, calls = ours.started(), Calls()
    scheduler.shutdown()
    job = scheduler.add_job(calls, misfire_grace_time=None)
    assert job.pending
    scheduler.start()
    calls.wait()


def test_a_store_added_while_running_is_served(package: Package) -> None:
    scheduler, calls = package.started(), Calls()
    scheduler.add_jobstore(package.get("jobstores.memory:MemoryJobStore")(), "other")
    scheduler.add_job(calls, jobstore="other")
    calls.wait()


def test_jobs_of_a_store_that_was_removed_are_not_fired(package: Package) -> None:
    scheduler, calls, other = package.started(), Calls(), Calls()
    scheduler.add_jobstore("memory", "other")
    scheduler.add_job(calls, "interval", jobstore="other", seconds=0.05)
    calls.wait(1)
    scheduler.remove_jobstore("other")
    count = len(calls.made)
    scheduler.add_job(other, "interval", seconds=0.05, max_instances=5)
    other.wait(4)
    assert len(calls.made) <= count + 1
    assert scheduler.get_jobs() != []


def test_an_executor_added_while_running_executes(package: Package) -> None:
    scheduler = package.started()
    names: list[str] = []
    heard = Heard(scheduler)
    scheduler.add_executor(package.get("executors.debug:DebugExecutor")(), "inline")
    scheduler.add_job(lambda: names.append("here"), executor="inline")
    heard.wait(package.events.EVENT_JOB_EXECUTED)
    assert names == ["here"]


def test_a_removed_executors_runs_wait_for_one_of_its_name(ours: Package) -> None:
    scheduler, calls = ours.started(), Calls()
    heard = Heard(scheduler)
    scheduler.add_executor("threadpool", "spare")
    job = scheduler.add_job(calls, "interval", hours=1, executor="spare")
    scheduler.remove_executor("spare")
    job.modify(next_run_time=datetime.now(UTC))
    heard.wait(ours.events.EVENT_JOB_SUBMITTED)
    assert calls.made == []
    assert scheduler.get_job(job.id) is not None
    scheduler.add_executor("threadpool", "spare")
    calls.wait()


def test_a_job_may_add_jobs(package: Package) -> None:
    scheduler, calls = package.started(), Calls()

    def spread() -> None:
        for number in range(3):
            scheduler.add_job(calls, args=[number], misfire_grace_time=None)

    scheduler.add_job(spread)
    calls.wait(3)
    assert sorted(args for args, _ in calls.made) == [(0,), (1,), (2,)]


def test_a_job_may_remove_itself(package: Package) -> None:
    scheduler = package.started()
    heard = Heard(scheduler)
    scheduler.add_job(lambda: scheduler.remove_job("me"), "interval", id="me", seconds=0.05)
    heard.wait(package.events.EVENT_JOB_REMOVED)
    heard.wait(package.events.EVENT_JOB_EXECUTED)
    assert scheduler.get_jobs() == []


def test_a_with_statement_starts_and_shuts_down(ours: Package) -> None:
    calls = Calls()
    with ours.scheduler() as scheduler:
        scheduler.add_job(calls)
        calls.wait()
    assert not scheduler.running


def test_wakeup_is_harmless_at_any_time(ours: Package) -> None:
    scheduler = ours.scheduler()
    scheduler.wakeup()
    scheduler.start()
    scheduler.wakeup()
    scheduler.shutdown()
    scheduler.wakeup()


def test_many_threads_may_add_and_remove_at_once(package: Package) -> None:
    scheduler, failures = package.started(), []

    def work(name: int) -> None:
        try:
            for number in range(20):
                job = scheduler.add_job(add, "interval", [1], id=f"{name}-{number}", hours=1)
                job.pause()
                job.remove()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert failures == []
    assert scheduler.get_jobs() == []


def test_a_start_that_fails_leaves_a_scheduler_that_can_be_put_right(ours: Package) -> None:
    scheduler = ours.scheduler()
    scheduler.add_job(add, args=[1], jobstore="othr")
    scheduler.add_jobstore("memory", "other")
    with pytest.raises(KeyError, match="othr"):
        scheduler.start()
    assert not scheduler.running
    scheduler.remove_all_jobs()
    calls = Calls()
    scheduler.add_job(calls)
    scheduler.start()
    calls.wait()


def test_a_new_life_is_not_ended_by_the_end_of_the_old_one(ours: Package) -> None:
    scheduler, calls = ours.started(), Calls()
    heard = Heard(scheduler, ours.events.EVENT_JOB_EXECUTED)
    began, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        began.set()
        wait_for(go_on)

    scheduler.add_job(hold, id="old")
    wait_for(began)
    scheduler.shutdown(wait=False)
    threading.Timer(0.2, go_on.set).start()
    in_time(scheduler.start)
    heard.wait(ours.events.EVENT_JOB_EXECUTED, job_id="old")
    for count in range(1, 21):
        scheduler.add_job(calls)
        calls.wait(count)
