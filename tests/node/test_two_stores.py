"""Stores of one scheduler whose clocks differ: each run is judged by the clock of its own store."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from mainspring.core.instants import from_us
from mainspring.core.run import Result, Run, Status
from mainspring.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_MISSED, SchedulerEvent
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.memory.store import MemoryJobStore
from mainspring.schedulers.background import BackgroundScheduler
from mainspring.testing.clock import VirtualClock
from tests.node.bench import Bench

HOUR = 3600


def fail() -> None:
    raise ValueError("no")


class Pair:
    """A scheduler with a store that has this machine's time, and one that has not."""

    def __init__(self, shift: float) -> None:
        self.ended = threading.Event()
        self.other = MemoryJobStore()
        self.other.shift_clock(shift)
        self.scheduler = BackgroundScheduler(jobstores={"default": MemoryJobStore(), "other": self.other})
        self.scheduler.add_listener(self._end, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR | EVENT_JOB_MISSED)

    def _end(self, event: SchedulerEvent) -> None:
        self.ended.set()

    def run_once(self, func: object, **options: object) -> tuple[int, Run, int]:
        """Have a job of the second store run; return its record between two looks at that store's clock."""
        before = self.other.beat()
        self.scheduler.add_job(func, jobstore="other", next_run_time=from_us(before), **options)  # type: ignore[arg-type]
        assert self.ended.wait(30)
        (run,) = self.scheduler.get_runs(jobstore="other")
        return before, run.record, self.other.beat()


@pytest.fixture(params=[HOUR, -HOUR], ids=["ahead", "behind"])
def shift(request: pytest.FixtureRequest) -> int:
    """By how many seconds a store's clock is wrong."""
    return int(request.param)


@pytest.fixture
def pair(shift: int) -> Iterator[Pair]:
    pair = Pair(shift)
    pair.scheduler.start()
    yield pair
    pair.scheduler.shutdown()


def test_a_run_of_a_store_with_another_clock_is_executed(pair: Pair) -> None:
    _, run, _ = pair.run_once(int)
    assert (run.status, run.attempt) == (Status.SUCCEEDED, 1)


def test_a_grace_time_is_judged_by_the_clock_of_the_jobs_store(pair: Pair) -> None:
    _, run, _ = pair.run_once(int, misfire_grace_time=600)
    assert run.status is Status.SUCCEEDED


def test_a_record_has_the_times_of_its_own_store(pair: Pair) -> None:
    before, run, after = pair.run_once(fail)
    assert run.started_at is not None
    assert run.finished_at is not None
    assert before <= run.started_at <= run.errors[0].at <= run.finished_at <= after


def claimed(bench: Bench, **options: object) -> Run:
    bench.add(**options)  # type: ignore[arg-type]
    bench.link.scheduler()
    return next(iter(bench.link.claims.values()))


def test_a_claimed_run_may_start(bench: Bench) -> None:
    assert bench.link.may_start(claimed(bench)) is None


def test_a_run_past_its_start_by_is_late(bench: Bench, clock: VirtualClock) -> None:
    run = claimed(bench, misfire_grace_time=3)
    clock.advance(3)
    assert bench.link.may_start(run) is None
    clock.advance(0.001)
    assert bench.link.may_start(run) is Result.LATE


def test_a_run_whose_claim_is_over_is_given_back(bench: Bench, clock: VirtualClock) -> None:
    run = claimed(bench)
    clock.advance(bench.node.lease)
    assert bench.link.may_start(run) is None
    clock.advance(0.001)
    assert bench.link.may_start(run) is Result.UNSTARTED


def test_waiting_runs_are_given_back_by_how_long_they_wait_here(
    bench: Bench, clock: VirtualClock, store: JobStore, shift: float
) -> None:
    submitted: list[int] = []

    def withdraw(older_than: int | None = None) -> list[Run]:
        assert older_than is not None
        return [run for run, _ in bench.executor.given.values() if submitted[0] < older_than]

    bench.executor.withdraw = withdraw  # type: ignore[method-assign]
    run = claimed(bench)
    submitted.append(bench.executor.now())
    store.shift_clock(shift)
    bench.link.observe(store.beat(), clock.monotonic())
    bench.link.worker()
    assert not bench.link.worker.outbox
    clock.advance(2)
    bench.link.worker()
    assert [(report.run, report.result) for report in bench.link.worker.outbox] == [(run, Result.UNSTARTED)]
