"""What happened is counted, on every store, and outlives the runs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mainspring import Mainspring
from mainspring.core.insight.metrics import DAY_US, HOUR_US, MINUTE_US, Counts
from mainspring.core.instants import SECOND
from tests.app.kit import EVERYWHERE, LIMIT, LOCAL

HOUR = timedelta(hours=1)


def said(counts: Counts) -> dict[str, int]:
    names = ("added", "started", "succeeded", "failed", "retried", "cancelled")
    return {name: counts.of(name) for name in names if counts.of(name)}


@EVERYWHERE
def test_what_a_node_does_is_counted_by_queue_task_and_job(app: Mainspring) -> None:
    @app.task(queue="mail", retries=1, backoff=0.0)
    def send(fine: bool) -> None:
        if not fine:
            raise ValueError("no such address")

    @app.schedule("interval", hours=1, id="hourly")
    @app.task(queue="default")
    def report() -> None:
        return None

    runs = [send.enqueue(True), send.enqueue(True), send.enqueue(False)]
    later = send.options(delay=1000).enqueue(True)
    app.cancel(later)
    app.start(work=True)
    app.run_now("hourly")
    app.wait(runs, LIMIT)
    app.stop()

    by_queue = app.metrics(HOUR, by="queue")
    assert said(by_queue.total("mail")) == {
        "added": 4, "started": 4, "succeeded": 2, "failed": 1, "retried": 1, "cancelled": 1
    }  # fmt: skip
    assert by_queue.total("mail").took.number == 4
    assert by_queue.total("mail").waited.number == 4
    assert (
        app.metrics(HOUR, queue="mail").total() == by_queue.total("mail") == app.metrics(HOUR, task=send.name).total()
    )
    assert app.metrics(HOUR, job="hourly").total().of("added") == 1
    everything = app.metrics(HOUR).total()
    assert everything == by_queue.total()
    for step in (HOUR, timedelta(days=1)):
        assert app.metrics(timedelta(days=2), step=step).total() == everything


@LOCAL
def test_counters_outlive_the_runs(app: Mainspring) -> None:
    @app.task
    def add(one: int, two: int) -> int:
        return one + two

    runs = [add.enqueue(1, number) for number in range(5)]
    app.start(work=True)
    app.wait(runs, LIMIT)
    app.stop()
    for run in runs:
        assert app.delete(run)
    assert app.metrics().total().of("succeeded") == 5


@LOCAL
def test_steps_are_as_long_as_what_is_kept_that_far_back(app: Mainspring) -> None:
    def step_of(days: float, step: timedelta | None = None) -> int:
        return app.metrics(timedelta(days=days), step=step).step

    assert step_of(1 / 24) == MINUTE_US
    assert step_of(1, timedelta(minutes=15)) == 15 * MINUTE_US
    assert step_of(7, timedelta(minutes=15)) == HOUR_US
    assert step_of(30, timedelta(hours=8)) == 8 * HOUR_US
    assert step_of(365, timedelta(hours=1)) == DAY_US
    found = app.metrics(timedelta(days=1), step=timedelta(minutes=15))
    assert len(found.whole) == found.number == 97
    assert found.since % (15 * MINUTE_US) == 0
    assert found.since + found.number * found.step > app.now()


@LOCAL
def test_unknown_subjects_and_endless_charts_are_refused(app: Mainspring) -> None:
    assert app.metrics(queue="nobody").total() == Counts()
    with pytest.raises(ValueError, match="can be 'queue', 'task', 'job', 'error' or 'lost'"):
        app.metrics(by="node")
    with pytest.raises(TypeError, match="give one of"):
        app.metrics(by="queue", queue="mail")
    with pytest.raises(ValueError, match="at least a second"):
        app.metrics(step=timedelta())
    with pytest.raises(ValueError, match="steps"):
        app.metrics(timedelta(days=40 * 365), step=timedelta(minutes=1))


@LOCAL
def test_a_process_that_only_enqueues_hands_over_its_sums_when_it_closes(app: Mainspring) -> None:
    if app.store.volatile:
        pytest.skip("it ends with the process")

    @app.task
    def add() -> None:
        return None

    add.enqueue()
    app.close()
    assert app.metrics().total().of("added") == 1


def test_inline_runs_are_counted_in_their_own_store() -> None:
    app = Mainspring("memory://")
    app.inline = True

    @app.task
    def add() -> None:
        return None

    add.enqueue()
    total = app.metrics().total()
    assert said(total) == {"added": 1, "started": 1, "succeeded": 1}
    assert total.took.total < LIMIT * SECOND
