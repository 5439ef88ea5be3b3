"""Steps whose predecessors live in another shard of a Redis store: bridges carry the end of one to the other."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import pytest

from mainspring import Mainspring, current_run
from mainspring.app.flows.bridging import Bridging
from mainspring.core.run import FINAL, Report, Result, Run
from mainspring.core.transitions import conclude
from mainspring.core.waiting.flows import BRIDGE_TASK, SIGNAL_QUEUE
from mainspring.errors import RunNotFound
from mainspring.jobstores.base import Answers, RunQuery
from mainspring.jobstores.redis import RedisJobStore
from mainspring.testing.conformance.helpers import claim
from tests.servers import Redis


def give(value: int) -> int:
    return value


def fail() -> None:
    raise LookupError("no such page")


def add(*values: int) -> int:
    return sum(values)


def inputs() -> list[int]:
    return list(current_run().inputs)


def ids_of(app: Mainspring) -> tuple[str, str]:
    """Return two ids whose runs live in different shards."""
    shards = app.store._shards  # type: ignore[attr-defined]
    ids = [f"run-{number}" for number in range(100)]
    other = next(each for each in ids if shards.of_run(each) is not shards.of_run(ids[0]))
    return ids[0], other


def work(app: Mainspring) -> None:
    """Execute what waits, until nothing is left."""
    if not app.running:
        app.start(work=True, threads=4)
    deadline = time.monotonic() + 60
    while left(app):
        assert time.monotonic() < deadline, left(app)
        time.sleep(0.01)


def left(app: Mainspring) -> list[Run]:
    return [run for run in app.store.find_runs(RunQuery(), limit=100) if run.status not in FINAL]


@pytest.fixture
def app(redis_server: Redis, request: pytest.FixtureRequest) -> Iterator[Mainspring]:
    name = f"bridges-{request.node.name}"
    app = Mainspring(RedisJobStore(url=redis_server.url, name=name, shards=4), lease=1.0)
    yield app
    app.close()


def test_a_step_after_runs_of_different_shards_gets_their_results(app: Mainspring) -> None:
    one, other = ids_of(app)
    first, second = app.task(give).options(id=one).enqueue(1), app.task(give).options(id=other).enqueue(2)
    total = app.task(add).enqueue(first.output, second.output)
    told = app.task(inputs).options(after=[first, second]).enqueue()
    work(app)
    assert (total.result(timeout=30), told.result(timeout=30)) == (3, [1, 2])
    assert left(app) == []


def test_a_step_after_runs_that_have_ended_starts_at_once(app: Mainspring) -> None:
    one, other = ids_of(app)
    first, second = app.task(give).options(id=one).enqueue(1), app.task(give).options(id=other).enqueue(2)
    work(app)
    total = app.task(add).enqueue(first.output, second.output)
    work(app)
    assert total.result(timeout=30) == 3


def test_a_failure_crosses_the_bridge(app: Mainspring) -> None:
    one, other = ids_of(app)
    first, second = app.task(give).options(id=one).enqueue(1), app.task(fail).options(id=other).enqueue()
    never = app.task(give).options(after=[first, second]).enqueue(3)
    anyway = app.task(give).options(after=[first, second], on="end").enqueue(4)
    work(app)
    with pytest.raises(Exception, match="no such page"):
        never.result(timeout=30)
    assert anyway.result(timeout=30) == 4
    assert left(app) == []


def test_a_step_after_a_run_that_is_not_there_is_not_stored(app: Mainspring) -> None:
    one, _ = ids_of(app)
    first = app.task(give).options(id=one).enqueue(1)
    with pytest.raises(RunNotFound, match="'nowhere'"):
        app.task(give).options(after=[first, "nowhere"]).enqueue(2)


@pytest.mark.parametrize("at", ["the start", "the end"])
def test_a_step_starts_once_wherever_its_bridge_dies(app: Mainspring, at: str) -> None:
    one, other = ids_of(app)
    first, second = app.task(give).options(id=one).enqueue(1), app.task(give).options(id=other).enqueue(2)
    total = app.task(add).enqueue(first.output, second.output)
    landing = next(run for run in left(app) if run.queue == SIGNAL_QUEUE)
    assert f"the end of run {landing.args[0]!r}, which is in another shard" in str(app.explain(landing.id))
    finish(app, claim(app.store))
    (bridge,) = claim(app.store, lease=0.05)
    assert bridge.call.task_name == BRIDGE_TASK
    if at == "the end":
        Bridging(app._app_store, app.runs).cross(*bridge.args)
    work(app)
    run = app.store.get_runs([total.id])[0]
    assert run is not None
    assert (run.result, run.attempt) == (3, 1)


def test_a_step_whose_enqueuer_dies_behind_the_bridge_can_be_enqueued_again(
    app: Mainspring, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = ids_of(app)
    first, second = app.task(give).options(id=one).enqueue(1), app.task(give).options(id=other).enqueue(2)
    finish(app, claim(app.store))
    add_runs = app.store.add_runs

    def first_write(rows: Sequence[Any]) -> Answers[str | None]:
        monkeypatch.setattr(app.store, "add_runs", second_write)
        return add_runs(rows)

    def second_write(rows: Sequence[Any]) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(app.store, "add_runs", first_write)
    step = app.task(add).options(id="step")
    with pytest.raises(KeyboardInterrupt):
        step.enqueue(first.output, second.output)
    monkeypatch.undo()
    (bridge,) = left(app)
    assert bridge.call.task_name == BRIDGE_TASK
    with pytest.raises(RunNotFound, match="nothing comes after this bridge yet"):
        Bridging(app._app_store, app.runs).cross(*bridge.args)
    total = step.enqueue(first.output, second.output)
    work(app)
    assert total.result(timeout=30) == 3


def finish(app: Mainspring, runs: Sequence[Run]) -> None:
    """Let the runs that give a value end well, as a worker would."""
    for run in runs:
        report = Report(run=run, result=Result.RETURNED, value=run.args[0])
        app.store.settle([app.store.pack_outcome(conclude(report, app.store.beat(), 0.0))])
