"""A run that comes by itself is settled by the thread that executed it; runs that come together, by the loop."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import UTC
from typing import Any

import pytest

from mainspring.core.instants import from_us
from mainspring.core.job import Job
from mainspring.core.policy import Policy
from mainspring.core.run import Call, Status
from mainspring.events import EVENT_JOB_EXECUTED
from mainspring.executors.current_run import CURRENT
from mainspring.executors.pool import ThreadPoolExecutor
from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.node.events.listeners import Listeners
from mainspring.node.events.run_events import RunEvents
from mainspring.node.node import Node
from mainspring.testing.clock import VirtualClock
from mainspring.triggers.interval import IntervalTrigger
from tests.executors.helpers import wait_until

TIMEOUT = 60.0


class Pool:
    """A node with threads; a test steps its loop, and says when the runs go on."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = MemoryJobStore(self.clock)
        self.executor = ThreadPoolExecutor(4)
        self.told: list[tuple[threading.Thread, Any]] = []
        listeners = Listeners()
        listeners.add(self._listen, EVENT_JOB_EXECUTED)
        self.node = Node(
            {"default": self.executor}, clock=self.clock, timezone=UTC, events=RunEvents(listeners, zone=lambda: UTC)
        )
        self.link = self.node.add_store("default", self.store)
        self.executor.now = self.node.elapsed
        self.executor.start(None, "default")
        self.may_end = threading.Event()

    def _listen(self, event: Any) -> None:
        self.told.append((threading.current_thread(), CURRENT.get()))

    def work(self) -> None:
        assert self.may_end.wait(TIMEOUT)

    def add(self, job_id: str, func: Any = None, **policy: Any) -> None:
        at = self.clock.now()
        trigger = IntervalTrigger(seconds=10, start_date=from_us(at), timezone="UTC")
        self.store.add_job(Job(job_id, Call(func or self.work, name="work"), trigger, at=at, policy=Policy(**policy)))

    def statuses(self) -> set[Status]:
        return {run.status for run in self.store.find_runs(RunQuery())}


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool()
    yield pool
    pool.may_end.set()
    pool.executor.shutdown()


def test_a_lone_run_is_settled_by_its_own_thread_and_wakes_nobody(pool: Pool) -> None:
    pool.add("lone")
    pool.link.work.step()
    pool.link.work._bell.clear()
    pool.link.work._sleeps_until = min(pool.link.work._due)
    pool.may_end.set()
    [(thread, current)] = wait_until(lambda: pool.told)
    assert thread.name.startswith("mainspring-default")
    assert current is None  # whatever a listener does is no part of the run
    wait_until(lambda: pool.executor._threads is not None and pool.executor._threads.idle)
    assert (pool.statuses(), pool.link.claims, pool.link.work._bell.wait(0)) == ({Status.SUCCEEDED}, {}, False)


def test_runs_that_come_together_are_settled_together_by_the_loop(pool: Pool) -> None:
    pool.add("one")
    pool.add("two")
    pool.link.work.step()
    pool.may_end.set()
    wait_until(lambda: len(pool.link.worker.outbox) == 2)
    assert pool.told == []
    pool.link.work.step()
    assert {thread for thread, _ in pool.told} == {threading.current_thread()}


def test_a_lone_run_that_ends_while_the_loop_is_at_work_is_settled_by_the_loop(pool: Pool) -> None:
    pool.add("lone")
    pool.link.work.step()
    pool.link.work._bell.clear()
    with pool.link.work._stepping:
        pool.may_end.set()
        assert pool.link.work._bell.wait(TIMEOUT)
        assert pool.told == []
    pool.link.work.step()
    assert [thread for thread, _ in pool.told] == [threading.current_thread()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_process_that_a_back_off_function_forks_there_executes_no_more_runs(pool: Pool) -> None:
    children: list[int] = []

    def fork(failures: int) -> float:
        children.append(os.fork())
        return 1.0

    def fail() -> None:
        pool.work()
        raise ValueError

    pool.add("lone", fail, retries=1, backoff=fork)
    pool.link.work.step()
    pool.may_end.set()
    wait_until(lambda: pool.statuses() == {Status.PENDING})
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
