"""Runs of every kind on real worker processes that are killed again and again: each ends as it should.

What was executed is counted in a ledger outside the store. `MAINSPRING_FULL=1` runs the full size.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mainspring.core.run import Status
from tests.cluster.kit import Line, Yard, stop, wait_until

FULL = os.environ.get("MAINSPRING_FULL") == "1"
SIZE = 2000 if FULL else 300
KILLS = 16 if FULL else 5
CHILDREN = 3
PATIENCE = 300.0
STARTS = {"ok", "failed", "tried", "began", "leaves", "crashes", "hangs", "holds", "parent"}


def plan(yard: Yard) -> list[tuple[Any, Status, Callable[[Any], bool]]]:
    """Return calls of every kind in a fixed disorder, each with how it must end."""
    jobs = yard.jobs
    calls: list[tuple[Any, Status, Callable[[Any], bool]]] = []

    def add(share: float, status: Status, check: Callable[[Any], bool], task: Any, *args: Any) -> None:
        calls.extend((task.call(*args), status, check) for _ in range(max(1, int(SIZE * share))))

    done, failed = Status.SUCCEEDED, Status.FAILED
    add(0.40, done, lambda run: run.result == 7, jobs.ok, 7)
    add(0.10, failed, lambda run: run.error.type == "ValueError" and run.failures == 1, jobs.fail)
    for failures in (1, 2, 4):
        add(0.05, done, partial(_failed_so_often, failures), jobs.flaky, failures)
    add(0.10, done, lambda run: run.failures == 0, jobs.quick, 0.02)
    add(0.15, done, lambda run: run.failures == 0, jobs.nap, 0.05)
    add(0.04, done, lambda run: run.result == CHILDREN, jobs.have_more, CHILDREN)
    add(0.01, failed, _timed_out, jobs.loop_for_ever.options(timeout=0.5))
    add(0.001, failed, _timed_out, jobs.loop_for_ever_apart.options(timeout=0.5))
    add(0.0005, failed, _timed_out, jobs.hold_interpreter.options(timeout=0.5), 600)
    add(0.0005, failed, _timed_out, jobs.swallow_cancellation.options(timeout=0.5))
    add(0.001, Status.BROKEN, lambda run: run.crashes == 4, jobs.leave, 1)
    add(0.0005, Status.BROKEN, lambda run: run.crashes == 4, jobs.crash)
    random.Random(20261115).shuffle(calls)
    return calls


def _failed_so_often(failures: int, run: Any) -> bool:
    return bool(run.result == run.failures == failures)


def _has_come_to(yard: Yard, progress: int) -> bool:
    return len(yard.ledger()) > progress


def _timed_out(run: Any) -> bool:
    return bool(run.error.type == "mainspring.errors.RunTimeout" and run.failures == 1)


def _least(run: Any) -> int:
    """A run may be killed before it has noted its start."""
    return int(run.status is Status.SUCCEEDED or run.error.type == "ValueError")


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found


def kill_something(yard: Yard, clusters: list[subprocess.Popen[bytes]], number: int) -> None:
    """Kill a worker; now and then a sentinel, which is replaced, or a process in which one run is executed alone."""
    cluster = clusters[number % len(clusters)]
    if number % 4 == 3:
        cluster.kill()
        cluster.wait()
        clusters[number % len(clusters)] = yard.start("-p", "2", "-t", "4")
        return
    apart = number % 4 == 1
    wait_until(lambda: kill_one_below(cluster.pid, apart, yard), lambda: f"process to kill\n{yard.log()[-6000:]}")


def kill_one_below(sentinel: int, apart: bool, yard: Yard) -> bool:
    found = yard.processes()
    workers = [pid for pid in children_of(sentinel) if "spawn_main" in found.get(pid, "")]
    victims = [child for worker in workers for child in children_of(worker)] if apart else []
    try:
        os.kill((victims or workers)[0], signal.SIGKILL)
    except (IndexError, ProcessLookupError):
        return False
    return True


def starts(lines: list[Line]) -> Counter[str]:
    """Count how often each run was started; no claim of a run may have led to two starts."""
    begun = [line for line in lines if line.word in STARTS]
    twice = [key for key, count in Counter((line.run_id, line.attempt) for line in begun).items() if count > 1]
    assert twice == []
    return Counter(line.run_id for line in begun)


@pytest.mark.timeout(PATIENCE + 60)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "redis"])
def test_every_run_ends_as_it_should_whoever_is_killed(
    make_yard: Callable[..., Yard], request: pytest.FixtureRequest, kind: str
) -> None:
    url = None if kind == "sqlite" else request.getfixturevalue(f"{kind}_server").url
    yard = make_yard(url=url, lease=3)
    calls = plan(yard)
    handles = yard.app.enqueue_many([call for call, _, _ in calls])
    clusters = [yard.start("-p", "2", "-t", "4") for _ in range(2)]
    for number in range(KILLS):
        progress = len(calls) * number // KILLS
        wait_until(partial(_has_come_to, yard, progress), patience=PATIENCE)
        kill_something(yard, clusters, number)
    runs = yard.end(handles, patience=PATIENCE)

    wrong = [
        run for run, (_, status, check) in zip(runs, calls, strict=True) if run.status is not status or not check(run)
    ]
    assert [(run.func, run.status, run.failures, run.crashes, run.interruptions, run.errors) for run in wrong] == []
    parents = [run.id for run in runs if run.func == "jobs:have_more"]
    born = yard.end([f"{parent}-{number}" for parent in parents for number in range(CHILDREN)], patience=PATIENCE)
    assert {run.status for run in born} == {Status.SUCCEEDED}
    assert yard.app.count() == len(runs) + len(born)
    assert not yard.app.count(status=["pending", "running"])
    for cluster in clusters:
        assert stop(cluster) == 0

    counts = starts(yard.ledger())
    for run in (*runs, *born):
        explained = run.failures + run.crashes + run.interruptions + (run.status is Status.SUCCEEDED)
        assert _least(run) <= counts[run.id] <= explained, (run.func, counts[run.id], yard.ledger(run=run), run.record)
    assert set(counts) <= {run.id for run in (*runs, *born)}
