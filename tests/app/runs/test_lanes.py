"""A coroutine and an isolated run start while others wait for busy threads: shown by their order, not by a time."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from time import monotonic, sleep
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.core.lanes import lanes_of
from mainspring.core.run import Run, Status
from mainspring.jobstores.base import RunQuery
from tests.app.kit import LIMIT, LOCAL, MakeApp

BUSY_RUNS = 300
"""They would keep two threads busy for as long as a test may take."""


class Threads:
    """Two threads that are busy with many runs of 0.2 seconds, until the test lets the rest of them end at once."""

    def __init__(self, app: Mainspring) -> None:
        self.app, self._over, started = app, threading.Event(), threading.Event()

        @app.task
        def busy() -> None:
            started.set()
            self._over.wait(0.2)

        app.start(work=True, threads=2)
        app.enqueue_many([busy.call() for _ in range(BUSY_RUNS)])
        assert started.wait(LIMIT)

    def waiting(self) -> int:
        """Count the runs that wait for a thread."""
        return self.app.store.stats(RunQuery(queue="default", status=(Status.PENDING,))).matching

    def end(self) -> None:
        self._over.set()


@LOCAL
def test_a_coroutine_starts_while_runs_that_came_before_it_wait_for_threads(app: Mainspring) -> None:
    waiting: list[int] = []
    threads: list[Threads] = []

    @app.task
    async def quick() -> str:
        waiting.append(threads[0].waiting())
        return "done"

    threads.append(Threads(app))
    try:
        assert quick.enqueue().result(timeout=LIMIT) == "done"
    finally:
        threads[0].end()
    assert waiting[0] > 0


def test_an_isolated_run_ends_while_runs_that_came_before_it_wait_for_threads(make_app: MakeApp) -> None:
    app = make_app()
    alone: Any = app.task(isolation="process", name="divmod")(divmod)
    threads = Threads(app)
    try:
        assert alone.enqueue(7, 2).result(timeout=LIMIT) == (3, 1)
        assert threads.waiting() > 0
    finally:
        threads.end()


# -- where runs are put ---------------------------------------------------------------------------------------------


def where(app: Mainspring, run_id: str) -> str:
    [run] = app.store.get_runs([run_id])
    assert isinstance(run, Run)
    return run.lane


@LOCAL
def test_the_enqueuer_puts_a_run_into_the_lane_of_its_executor(app: Mainspring) -> None:
    @app.task
    def plain() -> None: ...

    @app.task(queue="mail")
    async def coroutine() -> None: ...

    assert where(app, plain.enqueue().id) == "default"
    assert where(app, coroutine.enqueue().id) == "mail:async"
    assert where(app, plain.options(isolation="process").enqueue().id) == "default:process"
    assert where(app, app.enqueue(divmod, 7, 2).id) == "default"
    moved = coroutine.enqueue()
    app.runs.move(moved, "other")
    assert where(app, moved.id) == "other:async"
    assert {queue.name for queue in app.store.stats().queues} == {"default", "mail", "other"}


@LOCAL
@pytest.mark.parametrize("fires", ["by hand", "by time"])
def test_the_runs_of_a_schedule_go_to_the_lane_of_their_executor(app: Mainspring, fires: str) -> None:
    @app.task
    async def coroutine() -> None: ...

    job = app.add_job(coroutine, "interval", hours=1, id="hourly")
    if fires == "by hand":
        app.run_now(job.id)
    else:
        app.modify_job(job.id, next_run_time=datetime.now(UTC) - timedelta(seconds=1))
        app.start()
    found: list[Run] = []
    until = monotonic() + LIMIT
    while not found and monotonic() < until:
        sleep(0.01)
        found = app.store.find_runs(RunQuery(job_id="hourly"))
    assert [run.lane for run in found] == ["default:async"]


def test_a_broker_takes_the_runs_of_all_lanes(make_app: MakeApp) -> None:
    from mainspring.tasks.broker import Broker

    app = make_app()

    @app.task
    async def coroutine() -> None: ...

    run = coroutine.enqueue()
    assert [taken for taken, _ in Broker(app=app).dequeue()] == [run.id]
    assert lanes_of("default") == ("default", "default:async", "default:process")
