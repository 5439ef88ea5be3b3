"""How much a node claims from queues when one of its executors is full."""

from __future__ import annotations

from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.run import Call, Run, Status
from mainspring.executors.base import BaseExecutor
from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.node.node import FULL_EXECUTOR_CLAIM_RUNS, MOST_CLAIMED_RUNS, MOST_ISOLATED_AHEAD_RUNS, Node
from mainspring.node.store_link import StoreLink
from mainspring.testing.clock import VirtualClock
from tests.node.bench import HandExecutor, work


class Patient(HandExecutor):
    """Gives back what waits behind the runs in its slots, when they take long."""

    slow = False

    def withdraw(self, older_than: int | None = None) -> list[Run]:
        return [self.given.pop(run_id)[0] for run_id in list(self.given)[self.slots :]] if self.slow else []


class Queue:
    """A node that serves a queue with threads, and with processes for what has crashed before."""

    def __init__(self, clock: VirtualClock, store: MemoryJobStore, suspects: int, others: int, alone: int = 2) -> None:
        self.threads, self.processes = Patient(8), HandExecutor(alone)
        executors: dict[str, BaseExecutor] = {"threads": self.threads, "processes": self.processes}
        self.node = Node(executors, clock=clock, queues={"q": None}, prepare=self._prepare)
        self.link = self.node.links["default"] = StoreLink(self.node, "default", store)
        self.threads.now = self.processes.now = self.node.elapsed
        start = clock.now() - SECOND
        crashes = [1] * suspects + [0] * others
        store.add_runs(
            [Run(id=f"{n}", call=Call(work), queue="q", crashes=c, run_at=start + n) for n, c in enumerate(crashes)]
        )
        self.link.worker.look_everywhere()

    def _prepare(self, run: Run) -> Run:
        return replace(run, executor="processes" if run.crashes else "threads")


def test_what_waits_behind_many_runs_that_have_to_run_alone_is_not_kept_waiting(
    clock: VirtualClock, store: MemoryJobStore
) -> None:
    queue = Queue(clock, store, suspects=60, others=200)
    for _ in range(60):
        queue.link.worker()
        queue.threads.end_all()
    assert store.stats(RunQuery(status=(Status.SUCCEEDED,))).matching == 200
    assert len(queue.processes.given) == 60


def test_a_node_holds_a_bounded_number_of_runs_that_have_to_run_alone(
    clock: VirtualClock, store: MemoryJobStore
) -> None:
    queue = Queue(clock, store, suspects=500, others=0)
    for _ in range(60):
        queue.link.worker()
    assert len(queue.processes.given) < 2 + MOST_ISOLATED_AHEAD_RUNS + FULL_EXECUTOR_CLAIM_RUNS


def test_runs_that_wait_long_are_started_as_long_as_their_own_executor_has_slots(
    clock: VirtualClock, store: MemoryJobStore
) -> None:
    queue = Queue(clock, store, suspects=90, others=0, alone=100)
    ticks = 0
    while queue.link.worker() == 0:
        ticks += 1
    assert ticks < 20
    assert len(queue.processes.given) == 90


def test_an_executor_that_is_hardly_ever_needed_does_not_hold_up_the_others(
    clock: VirtualClock, store: MemoryJobStore
) -> None:
    queue = Queue(clock, store, suspects=0, others=200)
    assert queue.node.room() == (2, True)
    while queue.link.worker() == 0 or queue.threads.given:
        clock.advance(0.001)
        queue.threads.end_all()
    queue.node.rates["threads"] = 1e6
    assert queue.node.room() == (MOST_CLAIMED_RUNS, True)


def test_when_runs_take_longer_than_those_before_fewer_are_claimed_ahead(
    clock: VirtualClock, store: MemoryJobStore
) -> None:
    queue = Queue(clock, store, suspects=0, others=5000)
    queue.node.pace.update(threads=0.001, processes=0.001)
    queue.threads.slow = True
    queue.link.worker()
    assert store.stats(RunQuery(status=(Status.RUNNING,))).matching > 100
    queue.link.worker()  # what was given back is settled
    assert store.stats(RunQuery(status=(Status.RUNNING,))).matching <= 8 + FULL_EXECUTOR_CLAIM_RUNS
    assert queue.node.free("threads") <= 0
