"""Listeners hear of every run: those of jobs and those that were enqueued directly."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring, events
from mainspring.errors import Retry
from tests.app.kit import EVERYWHERE, KEY, LIMIT, LOCAL, Gate, MakeApp

NAMES = {
    events.EVENT_RUN_SUBMITTED: "submitted",
    events.EVENT_RUN_STARTED: "started",
    events.EVENT_RUN_SUCCEEDED: "succeeded",
    events.EVENT_RUN_FAILED: "failed",
    events.EVENT_RUN_RETRIED: "retried",
    events.EVENT_JOB_MISSED: "missed",
    events.EVENT_JOB_MAX_INSTANCES: "missed",
    events.EVENT_RUN_CANCELLED: "cancelled",
    events.EVENT_RUN_BROKEN: "broken",
    events.EVENT_JOB_BROKEN: "job broken",
    events.EVENT_RUN_LOST: "lost",
}


class Heard:
    """What an app says of its runs."""

    def __init__(self, app: Mainspring) -> None:
        self.events: list[Any] = []
        self._changed = threading.Condition()
        app.on(sum(NAMES), self)

    def __call__(self, event: Any) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def of(self, run_id: str) -> list[Any]:
        found = [event for event in self.events if event.run_id == run_id]
        # A worker may have a run before another thread can say that it is submitted, or that it is tried again.
        return sorted(found, key=lambda event: (event.code != events.EVENT_RUN_SUBMITTED, event.attempt))

    def wait(self, wanted: Callable[[], Any]) -> None:
        with self._changed:
            assert self._changed.wait_for(wanted, LIMIT), self.events

    def wait_for(self, run_id: str, *words: str) -> list[Any]:
        """Wait until exactly this was said of a run, and return the events."""
        self.wait(lambda: len(self.of(run_id)) >= len(words))
        found = self.of(run_id)
        assert [NAMES[event.code] for event in found] == list(words)
        return found


def double(number: int) -> int:
    return number * 2


def fail() -> None:
    raise ValueError("torn")


@EVERYWHERE
def test_a_run_that_was_enqueued_is_told_from_its_submission_to_its_end(app: Mainspring) -> None:
    heard = Heard(app)
    task = app.task(name="math.double", queue="sums")(double)
    app.start(work=True)
    handle = task.enqueue(4)
    told = heard.wait_for(handle.id, "submitted", "started", "succeeded")
    assert {(event.task, event.queue, event.job_id) for event in told} == {("math.double", "sums", None)}
    assert (told[2].retval, told[2].exception, told[2].attempt) == (8, None, 1)


@EVERYWHERE
def test_a_coroutine_and_an_unregistered_function_are_told_too(app: Mainspring) -> None:
    heard = Heard(app)

    @app.task
    async def work() -> None: ...

    app.start(work=True)
    first, second = work.enqueue(), app.enqueue(double, 4)
    assert heard.wait_for(first.id, "submitted", "started", "succeeded")[1].task == work.name
    assert heard.wait_for(second.id, "submitted", "started", "succeeded")[1].task == f"{__name__}:double"


@EVERYWHERE
def test_a_run_that_fails_is_told_with_each_retry(app: Mainspring) -> None:
    heard = Heard(app)
    app.start(work=True)
    handle = app.task(fail).options(retries=1, backoff=[0]).enqueue()
    told = heard.wait_for(handle.id, "submitted", "started", "retried", "started", "failed")
    assert told[2].reason == "torn"
    assert isinstance(told[4].exception, ValueError)
    assert "ValueError: torn" in told[4].traceback


@LOCAL
def test_a_run_that_is_cancelled_is_told_whether_it_waits_or_runs(app: Mainspring) -> None:
    heard, gate = Heard(app), Gate()

    @app.task
    async def hold() -> None:
        import asyncio

        gate._reached.set()
        await asyncio.sleep(3600)

    waiting = app.task(double).options(delay=3600).enqueue(1)
    waiting.cancel()
    heard.wait_for(waiting.id, "submitted", "cancelled")
    app.start(work=True)
    running = hold.enqueue()
    gate.reached()
    running.cancel()
    heard.wait_for(running.id, "submitted", "started", "cancelled")


@LOCAL
def test_runs_of_a_queue_that_is_purged_are_told_as_cancelled(app: Mainspring) -> None:
    heard = Heard(app)
    handles = [app.task(double).enqueue(number) for number in range(3)]
    app.purge("default")
    for handle in handles:
        heard.wait_for(handle.id, "submitted", "cancelled")


@LOCAL
def test_a_run_that_somebody_sends_back_is_told_as_retried(app: Mainspring) -> None:
    heard = Heard(app)
    handle = app.task(double).options(delay=3600).enqueue(1)
    handle.cancel()
    app.retry(handle)
    told = heard.wait_for(handle.id, "submitted", "cancelled", "retried")
    assert told[2].reason == "somebody sent it back"


@LOCAL
def test_a_second_enqueue_of_a_unique_call_is_not_told(app: Mainspring) -> None:
    heard = Heard(app)
    task = app.task(double).options(unique="one")
    assert task.enqueue(1).id == task.enqueue(1).id
    assert [NAMES[event.code] for event in heard.events] == ["submitted"]


@LOCAL
def test_the_steps_of_a_chain_and_hooks_are_told(app: Mainspring) -> None:
    heard = Heard(app)
    app.task(note_end)
    app.start(work=True)
    first, second = app.chain([app.task(double).call(1), app.task(double).options(hook=note_end).call(2)])
    heard.wait_for(first.id, "submitted", "started", "succeeded")
    heard.wait_for(second.id, "submitted", "started", "succeeded")
    heard.wait_for(f"{second.id}~hook", "submitted", "started", "succeeded")


def note_end(run: Any) -> None: ...


@LOCAL
def test_runs_of_a_job_are_told_with_the_job(app: Mainspring) -> None:
    heard = Heard(app)
    app.start(work=True)
    app.add_job(double, "interval", [4], id="sum", hours=1)
    handle = app.run_now("sum")
    told = heard.wait_for(handle.id, "submitted", "started", "succeeded")
    assert {(event.job_id, event.task, event.queue) for event in told} == {("sum", f"{__name__}:double", "default")}


@LOCAL
def test_a_fire_past_its_grace_is_told_with_the_id_of_its_record(app: Mainspring) -> None:
    heard = Heard(app)
    app.start(work=True)
    late = datetime.now(UTC) - timedelta(minutes=1)
    app.add_job(double, "date", [4], id="late", run_date=late, misfire_grace_time=5)
    heard.wait(lambda: any(NAMES[event.code] == "missed" for event in heard.events))
    (event,) = heard.events
    assert (event.job_id, event.scheduled_run_time) == ("late", late)
    assert app.get(event.run_id).status == "missed"
    assert event.reason == "late"


def test_runs_of_inline_mode_are_told(make_app: MakeApp) -> None:
    app = make_app(inline=True)
    heard = Heard(app)
    handle = app.task(double).enqueue(4)
    heard.wait_for(handle.id, "submitted", "started", "succeeded")


def test_a_task_in_a_process_of_its_own_is_told() -> None:
    from tests.app.isolated import app, pid

    heard = Heard(app)
    app.start(work=True)
    try:
        handle = pid.enqueue()
        heard.wait_for(handle.id, "submitted", "started", "succeeded")
    finally:
        app.close()
        app._listeners.remove(heard)


def test_a_run_and_a_job_whose_records_are_damaged_are_told_as_broken(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path}/jobs.db", secret_key=KEY)
    heard = Heard(app)
    handle = app.task(double).enqueue(4)
    app.add_job(double, "interval", [4], id="sum", hours=1)
    app.close()
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection, connection:
        connection.execute("UPDATE mainspring_runs SET payload = x'00'")
        connection.execute("UPDATE mainspring_jobs SET frame = x'00'")
    app.start(work=True)
    told = heard.wait_for(handle.id, "submitted", "broken")
    assert (told[1].queue, told[1].jobstore) == ("default", "default")
    assert app.get(handle.id).reason == told[1].reason
    assert app.jobs() == []
    (event,) = [event for event in heard.events if event.code == events.EVENT_JOB_BROKEN]
    assert (event.job_id, event.jobstore) == ("sum", "default")
    assert event.reason


@LOCAL
def test_with_nobody_listening_no_event_is_made(app: Mainspring, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("an event was made")

    monkeypatch.setattr(events.SchedulerEvent, "__init__", refuse)
    app.start(work=True)
    assert app.task(double).enqueue(4).result(timeout=LIMIT) == 8


@LOCAL
def test_a_task_that_asks_to_be_tried_later_is_told_as_retried(app: Mainspring) -> None:
    heard, tries = Heard(app), []

    @app.task
    def patient() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise Retry(0, "not yet", counted=False)

    app.start(work=True)
    handle = patient.enqueue()
    told = heard.wait_for(handle.id, "submitted", "started", "retried", "started", "succeeded")
    assert "not yet" in told[2].reason


@LOCAL
def test_listeners_hear_what_is_done_to_jobs(app: Mainspring) -> None:
    heard: list[tuple[int, str]] = []
    app.on(
        events.EVENT_JOB_ADDED | events.EVENT_JOB_MODIFIED | events.EVENT_JOB_REMOVED,
        lambda event: heard.append((event.code, event.job_id)),
    )

    @app.task
    def work() -> None: ...

    @app.schedule("interval", hours=1, id="declared")
    def declared() -> None: ...

    app.reconcile()
    app.add_job(work, "interval", hours=1, id="by hand")
    app.modify_job("by hand", max_instances=3)
    app.pause_job("by hand")
    app.remove_job("by hand")
    assert heard == [
        (events.EVENT_JOB_ADDED, "declared"),
        (events.EVENT_JOB_ADDED, "by hand"),
        (events.EVENT_JOB_MODIFIED, "by hand"),
        (events.EVENT_JOB_MODIFIED, "by hand"),
        (events.EVENT_JOB_REMOVED, "by hand"),
    ]


@EVERYWHERE
def test_fires_that_a_change_of_their_job_skips_are_told_as_missed(app: Mainspring) -> None:
    heard = Heard(app)

    @app.task(queue="work")
    def work() -> None: ...

    past = datetime(2026, 1, 1, tzinfo=UTC)
    app.add_job(work, "interval", hours=1, id="it", next_run_time=past)
    app.pause_job("it")
    app.modify_job("it", next_run_time=past + timedelta(days=1))
    app.add_job(work, "interval", hours=2, id="it", replace_existing=True)
    kept = {run.id: run.reason for run in app.find(job="it", status="missed")}
    assert set(kept.values()) == {"paused", "rescheduled"}
    assert {event.run_id: event.reason for event in heard.events} == kept
    assert {(event.code, event.job_id, event.queue) for event in heard.events} == {
        (events.EVENT_JOB_MISSED, "it", "work")
    }
