"""A run whose cancel was accepted does not run again, whatever its holder says of it, and if the holder is gone."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import events
from mainspring.core.run import Report, Result, Run, Status
from mainspring.core.transitions import recover
from mainspring.errors import Retry
from mainspring.jobstores.base import RunQuery
from tests.node.bench import Bench


def runs(bench: Bench, **query: Any) -> list[Run]:
    return bench.store.find_runs(RunQuery(**query))


@pytest.mark.parametrize("error", [ValueError("no"), Retry(5)])
def test_a_run_that_fails_when_it_was_to_be_stopped_is_cancelled_and_not_retried(
    bench: Bench, error: Exception
) -> None:
    bench.add(retries=3, backoff=1)
    bench.link.scheduler()
    (run_id,) = bench.executor.given
    assert bench.store.cancel([run_id]) == [True]
    bench.executor.end(run_id, error)
    bench.link.worker()
    (run,) = runs(bench)
    assert (run.status, len(run.errors)) == (Status.CANCELLED, 1)
    assert (bench.link.claims, bench.link.in_flight, bench.link.worker.unsettled) == ({}, {"default": 0}, 0)


def test_a_run_to_be_stopped_that_is_given_back_is_cancelled(bench: Bench) -> None:
    bench.add("a")
    bench.add("b")
    bench.link.scheduler()
    marked, other = bench.executor.given
    assert bench.store.cancel([marked]) == [True]
    for run, report in bench.executor.given.values():
        report(Report(run, Result.UNSTARTED))
    bench.executor.given.clear()
    bench.link.worker()
    assert [run.id for run in runs(bench, status=(Status.CANCELLED,))] == [marked]
    assert list(bench.executor.given) == [other]
    assert events.EVENT_RUN_LOST not in bench.codes()


def test_what_is_given_back_after_it_was_lost_is_told_as_lost(bench: Bench, other: Bench) -> None:
    bench.add()
    bench.link.scheduler()
    (run, report) = next(iter(bench.executor.given.values()))
    bench.clock.advance(16)
    assert bench.store.settle([recover(run, bench.clock.now())]) == [True]
    report(Report(run, Result.UNSTARTED))
    bench.link.worker.settles()
    (waiting,) = runs(bench)
    assert (waiting.status, bench.link.claims) == (Status.PENDING, {})
    assert events.EVENT_RUN_LOST in bench.codes()


def test_a_run_to_be_stopped_is_cancelled_by_the_janitor_when_its_node_is_gone(bench: Bench, other: Bench) -> None:
    bench.add()
    bench.link.scheduler()
    (run_id,) = bench.executor.given
    assert bench.store.cancel([run_id]) == [True]
    other.link.heartbeat()
    bench.clock.advance(16)
    other.link.janitor()
    assert [run.status for run in runs(bench)] == [Status.CANCELLED]


def test_a_node_that_leaves_a_store_fires_none_of_its_jobs(bench: Bench) -> None:
    bench.add()
    bench.node.remove_store("default")
    bench.link.scheduler()
    assert runs(bench) == []
