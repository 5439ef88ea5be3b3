"""Jobs through the app: the scheduler's verbs, and run now, skip, preview."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.core.plan import Place, firing, plan
from mainspring.core.run import Status
from mainspring.errors import ConflictingIdError, JobLookupError, MaxInstancesReachedError, VersionConflict
from mainspring.events import EVENT_JOB_EXECUTED
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.finding import count_unfinished
from mainspring.node.jobs import book as job_book
from mainspring.testing.conformance.helpers import together
from tests.app.kit import EVERYWHERE, LIMIT, LOCAL, Gate


def double(number: int) -> int:
    return number * 2


@EVERYWHERE
def test_a_job_is_added_with_the_schedulers_arguments_and_runs_in_the_queue_of_its_task(app: Mainspring) -> None:
    task = app.task(queue="math", retries=3)(double)
    job = app.add_job(task, "interval", minutes=5, args=[21], id="often", name="every five", max_instances=2)
    assert (job.id, job.queue, job.policy.retries, job.max_instances) == ("often", "math", 3, 2)
    app.start(work=True)
    handle = app.run_now("often")
    assert handle.result(timeout=LIMIT) == 42
    view = handle.fetch()
    assert (view.job_id, view.name, view.queue, app.count(job="often")) == ("often", "every five", "math", 1)


@EVERYWHERE
def test_a_job_without_a_trigger_runs_once_and_is_gone(app: Mainspring) -> None:
    app.start(work=True)
    job = app.add_job(double, args=[4])
    deadline = time.monotonic() + LIMIT
    while not (runs := app.find(job=job.id)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert runs[0].id.startswith(job.id)
    assert app.wait([runs[0].id], LIMIT)[0].result == 8
    assert app.jobs() == []


@LOCAL
def test_a_taken_id_is_refused_unless_it_is_to_be_replaced(app: Mainspring) -> None:
    app.add_job(double, "interval", hours=1, args=[1], id="one")
    with pytest.raises(ConflictingIdError):
        app.add_job(double, "interval", hours=2, args=[2], id="one")
    app.add_job(double, "interval", hours=3, args=[3], id="one", replace_existing=True)
    assert [job.args for job in app.jobs()] == [(3,)]


@EVERYWHERE
def test_a_job_can_be_paused_resumed_modified_rescheduled_and_removed(app: Mainspring) -> None:
    job = app.add_job(double, "interval", hours=1, args=[1], id="one")
    assert app.pause_job("one").next_run_time is None
    resumed = app.resume_job(job)
    assert resumed is not None
    assert resumed.next_run_time is not None
    assert app.modify_job("one", args=[5], retries=2).args == (5,)
    assert app.get_job("one").policy.retries == 2
    moved = app.reschedule_job("one", "date", run_date=datetime(2090, 1, 1, tzinfo=UTC))
    assert moved.next_run_time == datetime(2090, 1, 1, tzinfo=UTC)
    app.remove_job("one")
    with pytest.raises(JobLookupError):
        app.get_job("one")


@LOCAL
def test_the_job_itself_has_the_verbs_too(app: Mainspring) -> None:
    job = app.add_job(double, "interval", hours=1, args=[1], id="one")
    job.pause()
    assert app.get_job("one").next_run_time is None
    job.resume()
    job.modify(name="other")
    assert app.get_job("one").name == "other"
    job.remove()
    assert app.jobs() == []


@LOCAL
def test_a_misspelt_job_is_told_the_near_one(app: Mainspring) -> None:
    app.add_job(double, "interval", hours=1, args=[1], id="nightly")
    with pytest.raises(JobLookupError, match="did you mean 'nightly'"):
        app.pause_job("nigthly")
    with pytest.raises(ValueError, match="named by its id"):
        app.pause_job(17)  # type: ignore[arg-type]


@EVERYWHERE
def test_running_a_job_now_keeps_to_its_schedule_and_its_most_instances(app: Mainspring) -> None:
    job = app.add_job(double, "interval", hours=1, args=[1], id="one")
    first = app.run_now(job)
    with pytest.raises(MaxInstancesReachedError, match="maximum of 1"):
        app.run_now("one")
    assert app.get_job("one").next_run_time == job.next_run_time
    first.cancel()
    assert app.run_now("one") != first


@EVERYWHERE
def test_a_job_of_an_executor_that_is_run_now_waits_for_a_scheduler_that_has_it(app: Mainspring) -> None:
    app.add_job(double, "interval", hours=1, args=[1], id="one")
    app.modify_job("one", executor="default")
    handle = app.run_now("one")
    run = app.get(handle.id)
    assert (run.queue, run.status, run.reason) == (".default", "pending", None)


@LOCAL
def test_a_job_of_an_executor_that_no_node_of_an_app_has_is_named_with_the_way_to_its_workers(
    app: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    app.add_job(double, "interval", hours=1, args=[1], id="one", next_run_time=datetime(2020, 1, 1, tzinfo=UTC))
    app.modify_job("one", executor="default")
    app.start()
    deadline = time.monotonic() + LIMIT
    while not app.count(job="one"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "job 'one' wants the executor 'default'" in caplog.text
    assert """app.modify_job('one', executor="queue")""" in caplog.text


@EVERYWHERE
def test_of_several_who_run_a_job_now_at_once_no_more_do_than_its_most_instances(app: Mainspring) -> None:
    app.add_job(double, "interval", hours=1, args=[1], id="one", max_instances=2)

    def run_now(_: int) -> bool:
        try:
            app.run_now("one")
        except MaxInstancesReachedError:
            return False
        return True

    for _ in range(5):
        assert together(6, run_now).count(True) == 2
        for run in app.find(job="one", status=["pending"]):
            assert app.cancel(run.id)


@EVERYWHERE
def test_a_fire_between_the_count_and_the_run_now_is_counted_too(
    app: Mainspring, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.add_job(double, "interval", hours=1, args=[1], id="one", next_run_time=datetime(2020, 1, 1, tzinfo=UTC))

    def count_then_fire(store: JobStore, jobs: Sequence[tuple[str, int]]) -> list[int]:
        counts = count_unfinished(store, jobs)
        now = store.beat()
        store.fire([firing(due, plan(due, now), Place("default"), now) for due in store.due(1, 0).jobs], 15.0)
        return counts

    monkeypatch.setattr(job_book, "count_unfinished", count_then_fire)
    with pytest.raises(MaxInstancesReachedError):
        app.run_now("one")
    assert app.count(job="one") == 1


@LOCAL
def test_running_a_job_now_gives_up_if_somebody_else_changes_it_every_time(
    app: Mainspring, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.add_job(double, "interval", hours=1, args=[1], id="one")
    tries = 0

    def count_then_change(store: JobStore, jobs: Sequence[tuple[str, int]]) -> list[int]:
        nonlocal tries
        tries += 1
        counts = count_unfinished(store, jobs)
        app.modify_job("one", name=f"changed {tries} times")
        return counts

    monkeypatch.setattr(job_book, "RUN_NOW_TRIES", 3)
    monkeypatch.setattr(job_book, "count_unfinished", count_then_change)
    with pytest.raises(VersionConflict, match="'one' was changed by somebody else"):
        app.run_now("one")
    assert tries == 3
    assert app.count(job="one") == 0


@EVERYWHERE
def test_a_job_run_now_is_not_missed_however_long_it_waits(app: Mainspring) -> None:
    app.add_job(double, "interval", hours=1, args=[1], id="one", misfire_grace_time=1)
    run = app.get(app.run_now("one").id)
    assert run.start_by is None
    assert run.run_at == run.fire_time == run.created_at
    assert run.id.endswith(f"@{run.record.fire_time}")


@EVERYWHERE
def test_a_paused_job_can_be_run_now_and_stays_paused(app: Mainspring) -> None:
    app.add_job(double, "interval", hours=1, args=[2], id="one")
    app.pause_job("one")
    app.start(work=True)
    assert app.run_now("one").result(timeout=LIMIT) == 4
    assert app.get_job("one").next_run_time is None


@EVERYWHERE
def test_the_next_fire_can_be_skipped(app: Mainspring) -> None:
    job = app.add_job(double, "interval", hours=1, args=[1], id="one")
    assert job.next_run_time is not None
    assert app.skip_next("one").next_run_time == job.next_run_time + timedelta(hours=1)
    app.pause_job("one")
    with pytest.raises(ValueError, match="paused"):
        app.skip_next("one")
    app.add_job(double, "date", run_date="2090-01-01", args=[1], id="last")
    with pytest.raises(ValueError, match="its last"):
        app.skip_next("last")


@LOCAL
def test_the_next_fires_can_be_previewed(app: Mainspring) -> None:
    app.add_job(double, "cron", hour=9, timezone="Europe/Berlin", args=[1], id="nine")
    times = app.preview("nine", 3)
    assert [moment.hour for moment in times] == [9, 9, 9]
    assert times == sorted(times)
    assert times[0] == app.get_job("nine").next_run_time
    app.pause_job("nine")
    assert app.preview("nine", 3) == times
    app.add_job(double, "date", run_date="2090-01-01", args=[1], id="last")
    assert len(app.preview("last")) == 1


@EVERYWHERE
def test_removing_a_job_leaves_its_runs_unless_they_are_to_be_cancelled(app: Mainspring) -> None:
    gate = Gate()

    @app.task
    def wait() -> None:
        gate.wait()

    app.start(work=True)
    app.add_job(wait, "interval", hours=1, id="one", max_instances=3, queue="nobody")
    waiting = app.run_now("one")
    app.modify_job("one", queue="default")
    running = app.run_now("one")
    gate.reached()
    app.remove_job("one", cancel_runs=True)
    assert waiting.status() is Status.CANCELLED
    gate.open()
    assert app.wait([running], LIMIT)[0].status is Status.CANCELLED
    app.add_job(double, "interval", args=[1], hours=1, id="two", queue="nobody")
    left = app.run_now("two")
    app.remove_job("two")
    assert left.status() is Status.PENDING


@LOCAL
def test_events_of_jobs_are_told_to_those_who_listen(app: Mainspring) -> None:
    heard = Gate()
    values: list[int] = []

    def note(event: Any) -> None:
        values.append(event.retval)
        heard.open()

    app.on(EVENT_JOB_EXECUTED, note)

    app.add_job(double, "interval", hours=1, args=[21], id="one")
    app.start(work=True)
    app.run_now("one").result(timeout=LIMIT)
    heard.wait()
    assert values == [42]
