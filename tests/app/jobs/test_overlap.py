"""What a fire does while an earlier run of its job goes on, with real nodes on every kind of store."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.core.run import Status
from mainspring.schedulers.background import BackgroundScheduler
from tests.app.kit import EVERYWHERE, Gate
from tests.waiting import until

gates: list[Gate] = []


def doze() -> None:
    """Let the first run of a test wait: in steps, in which it can be stopped."""
    if gates:
        gate = gates.pop()
        gate._reached.set()
        while not gate._opened.is_set():
            time.sleep(0.01)


@pytest.fixture
def gate() -> Gate:
    gates[:] = [Gate()]
    return gates[0]


def ended(app: Mainspring, *statuses: str) -> list[Any]:
    return sorted(app.find(job="doze", status=statuses or "succeeded"), key=lambda run: run.record.fire_time or 0)


@EVERYWHERE
def test_a_queued_fire_runs_after_the_one_that_goes_on(app: Mainspring, gate: Gate) -> None:
    app.schedule("interval", seconds=1, id="doze", overlap="queue")(doze)
    app.start(work=True)
    gate.reached()
    job: Any = until(lambda: (found := app.get_job("doze")) and (found.at or 0) <= app.now() - 500_000 and found)
    assert (job.overlap, app.find(job="doze", status="missed")) == ("queue", [])
    gate.open()
    first, second = until(lambda: found[:2] if len(found := ended(app)) >= 2 else [])
    assert second.started_at >= first.finished_at
    assert app.find(job="doze", status="missed") == []


@EVERYWHERE
def test_a_later_fire_cancels_the_run_that_goes_on(app: Mainspring, gate: Gate) -> None:
    app.schedule("interval", seconds=1, id="doze", overlap="cancel_other")(doze)
    app.start(work=True)
    gate.reached()
    [stopped] = until(lambda: ended(app, "cancelled"))
    [after, *_] = until(lambda: ended(app))
    assert (stopped.reason, after.started_at >= stopped.finished_at) == ("superseded", True)
    told = app.explain(f"run:{stopped.id}")
    assert "its schedule" in told.sentence
    assert app.find(job="doze", status="missed") == []


def test_a_scheduler_of_apschedulers_takes_the_overlap_of_a_job_and_of_its_defaults(gate: Gate) -> None:
    scheduler = BackgroundScheduler(timezone="UTC", job_defaults={"overlap": "cancel_other"})
    scheduler.add_job(doze, "interval", seconds=1, id="doze")
    scheduler.add_job(doze, "interval", hours=1, id="other", overlap="queue")
    scheduler.start()
    try:
        gate.reached()
        [stopped] = until(lambda: scheduler.get_runs("doze", status=Status.CANCELLED))
        assert stopped.reason == "superseded"
        until(lambda: scheduler.get_runs("doze", status=Status.SUCCEEDED))
        assert [job.overlap for job in scheduler.get_jobs()] == ["cancel_other", "queue"]
        with pytest.raises(ValueError, match=r"overlap is 'skip', 'queue' or 'cancel_other', not 'qeue'.*queue"):
            scheduler.modify_job("doze", overlap="qeue")
    finally:
        scheduler.shutdown()
