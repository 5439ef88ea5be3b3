"""Runs past their time-out are really stopped, whatever they do; their neighbours are not charged."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mainspring.core.run import Status
from tests.cluster.kit import PATIENCE, Yard, stop, wait_until, yard_in

SECONDS = 0.5
HANGING = ["loop_for_ever", "loop_for_ever_apart", "swallow_cancellation", "hold_interpreter"]


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Yard, dict[str, Any]]]:
    """A cluster after each task has hung in it, one that holds the interpreter beside a neighbour."""
    with yard_in(tmp_path_factory.mktemp("hung")) as yard:
        jobs = yard.jobs
        runs = {
            "loop_for_ever": jobs.loop_for_ever.options(timeout=SECONDS).enqueue(),
            "loop_for_ever_apart": jobs.loop_for_ever_apart.options(timeout=SECONDS).enqueue(),
            "swallow_cancellation": jobs.swallow_cancellation.options(timeout=SECONDS).enqueue(),
            "slow_once": jobs.slow_once.enqueue(),
        }
        yard.start("-p", "1", "-Q", "default")
        yard.start("-p", "1", "-Q", "side")
        yard.start("-p", "1", "-Q", "other")
        neighbour = jobs.at_gate.options(queue="side").enqueue("gate")
        (line,) = yard.await_line("began", neighbour)
        runs["hold_interpreter"] = jobs.hold_interpreter.options(queue="side", timeout=SECONDS).enqueue(600)
        runs["hold_interpreter_once"] = jobs.hold_interpreter_once.options(queue="other").enqueue()
        yard.end(list(runs.values()))
        yard.open("gate")
        runs["neighbour"] = neighbour
        yard.end([neighbour])
        wait_until(lambda: line.pid not in yard.processes())
        yield yard, runs


@pytest.mark.parametrize("task", HANGING)
def test_a_run_past_its_time_out_fails_by_it(hung: tuple[Yard, dict[str, Any]], task: str) -> None:
    yard, runs = hung
    ended = runs[task].fetch()
    assert (ended.status, ended.attempt, ended.failures, ended.crashes) == (Status.FAILED, 1, 1, 0)
    assert ended.error.type == "mainspring.errors.RunTimeout"
    assert len([line for line in yard.ledger(run=runs[task]) if line.word in ("hangs", "holds")]) == 1


@pytest.mark.parametrize("task", HANGING)
def test_what_was_stopped_goes_on_nowhere(hung: tuple[Yard, dict[str, Any]], task: str) -> None:
    yard, runs = hung
    line = yard.ledger(run=runs[task])[0]
    if task == "loop_for_ever":
        assert not [each for each in yard.ledger(run=runs[task]) if each.word == "looped"]
    else:
        wait_until(lambda: line.pid not in yard.processes(), lambda: f"end of process {line.pid}")


@pytest.mark.parametrize("task", ["slow_once", "hold_interpreter_once"])
def test_a_retry_follows_the_time_out(hung: tuple[Yard, dict[str, Any]], task: str) -> None:
    ended = hung[1][task].fetch()
    assert (ended.status, ended.result, ended.attempt) == (Status.SUCCEEDED, "quick this time", ended.attempt)
    assert (ended.failures, ended.crashes) == (1, 0)
    assert [error.type for error in ended.errors] == ["mainspring.errors.RunTimeout"]


def test_the_neighbour_of_a_run_that_had_to_be_killed_is_interrupted_and_not_charged(
    hung: tuple[Yard, dict[str, Any]],
) -> None:
    ended = hung[1]["neighbour"].fetch()
    assert (ended.status, ended.failures, ended.crashes, ended.errors) == (Status.SUCCEEDED, 0, 0, ())
    assert ended.interruptions >= 1


def test_a_task_that_holds_the_interpreter_longer_than_the_lease_keeps_its_run(
    make_yard: Callable[..., Yard],
) -> None:
    yard = make_yard(lease=1.5)
    run = yard.jobs.hold_interpreter.enqueue(5)
    yard.start("-p", "2")
    (ended,) = yard.end([run])
    assert (ended.status, ended.attempt, ended.interruptions) == (Status.SUCCEEDED, 1, 0)
    assert len(yard.ledger("holds", run)) == 1


def test_what_a_worker_had_claimed_behind_a_task_that_holds_the_interpreter_is_executed_elsewhere_once(
    make_yard: Callable[..., Yard],
) -> None:
    yard = make_yard(lease=1.5)
    ok, hold, pipe = yard.jobs.ok, yard.jobs.hold_interpreter_at, yard.folder / "pipe"
    os.mkfifo(pipe)
    yard.start("-p", "1", "-t", "1")
    yard.end(yard.app.enqueue_many([ok.call() for _ in range(300)]))  # so that it claims ahead
    handles = yard.app.enqueue_many([hold.call(pipe.name), *(ok.call() for _ in range(100))])
    holder, waiting = handles[0], handles[1:]
    yard.await_line("holds", holder)
    assert {run.fetch().status for run in waiting} >= {Status.RUNNING}
    yard.start("-p", "1", "-t", "1")
    for run in yard.end(waiting):
        assert (run.status, run.attempt, run.interruptions) == (Status.SUCCEEDED, 1, 0)
    assert holder.fetch().status is Status.RUNNING
    os.close(os.open(pipe, os.O_WRONLY))
    (ended,) = yard.end([holder])
    assert (ended.status, ended.attempt) == (Status.SUCCEEDED, 1)
    yard.end([ok.enqueue()])
    assert all(stop(cluster) == 0 for cluster in yard.clusters)  # what it lost is refused, not started
    assert {len(yard.ledger("ok", run)) for run in waiting} == {1}


@pytest.mark.parametrize("task", ["at_gate", "at_gate_async", "at_gate_apart"])
def test_a_running_run_is_cancelled_from_outside(yard_of_short_leases: Yard, task: str) -> None:
    yard = yard_of_short_leases
    run = getattr(yard.jobs, task).enqueue("no gate")
    yard.await_line("began", run)
    assert run.cancel()
    (ended,) = yard.end([run])
    assert (ended.status, ended.errors) == (Status.CANCELLED, ())
    assert not yard.ledger("ended", run)


@pytest.mark.parametrize("task", ["sleep_in_c", "hold_interpreter", "swallow_cancellation", "block_loop"])
def test_a_run_that_cannot_be_interrupted_is_cancelled_all_the_same(yard_of_short_leases: Yard, task: str) -> None:
    yard = yard_of_short_leases
    run = getattr(yard.jobs, task).enqueue(*([600] if task != "swallow_cancellation" else []))
    (line,) = wait_until(lambda: yard.ledger(run=run)[:1])
    assert run.cancel()
    (ended,) = yard.end([run])
    assert (ended.status, ended.errors, ended.attempt, ended.crashes) == (Status.CANCELLED, (), 1, 0)
    assert ended.duration is not None
    wait_until(lambda: line.pid not in yard.processes(), lambda: f"end of process {line.pid}")
    assert yard.jobs.ok.enqueue(7).result(timeout=PATIENCE) == 7


def test_what_a_run_says_of_itself_is_seen_while_it_runs(yard_of_short_leases: Yard) -> None:
    yard = yard_of_short_leases
    run = yard.jobs.report.enqueue("gate")
    yard.await_line("began", run)
    seen = wait_until(lambda: found if (found := run.fetch()).log else None)
    assert seen is not None
    assert seen.status is Status.RUNNING
    assert seen.progress == {"done": 3, "total": 10, "text": "a third"}
    assert seen.data == {"seen": "data"}
    assert "a line of the task's own log" in seen.log[0]
    yard.open("gate")
    (ended,) = yard.end([run])
    assert (ended.status, ended.progress["done"], len(ended.log)) == (Status.SUCCEEDED, 3, 1)


@pytest.fixture(scope="module")
def yard_of_short_leases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder: Path = tmp_path_factory.mktemp("short")
    with yard_in(folder, lease=3) as yard:
        yard.start("-p", "1")
        yield yard
