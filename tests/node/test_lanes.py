"""How much a node claims from the lanes of its queues: each executor for its own free slots, all in one claim."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.lanes import LOOP_EXECUTOR, PROCESSES_EXECUTOR, THREADS_EXECUTOR, Want, needed_executor
from mainspring.core.run import Call, Run, Status
from mainspring.executors.base import BaseExecutor
from mainspring.jobstores.base import ClaimedRuns, RunQuery
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.node.node import MOST_CLAIMED_BYTES, Node
from mainspring.node.store_link import StoreLink
from mainspring.testing.clock import VirtualClock
from tests.node.bench import HandExecutor, work


class Patient(HandExecutor):
    """Gives back what waits behind the runs in its slots, when they take long."""

    slow = False

    def withdraw(self, older_than: int | None = None) -> list[Run]:
        return [self.given.pop(run_id)[0] for run_id in list(self.given)[self.slots :]] if self.slow else []


class CountingStore(MemoryJobStore):
    """Notes what was wanted of it."""

    wants: list[list[Want]]

    def claim(self, wants: Sequence[Want], *, node: str, token: str, lease: float) -> ClaimedRuns:
        self.__dict__.setdefault("wants", []).append(list(wants))
        return super().claim(wants, node=node, token=token, lease=lease)


class Queue:
    """A node that serves a queue with eight threads, a loop, and two processes."""

    def __init__(self, clock: VirtualClock, *, limit: int | None = None, unstarted: bool = False) -> None:
        self.clock, self.store = clock, CountingStore()
        self.store.use_clock(clock)
        self.store.start(None, "default")
        self.threads, self.loop, self.processes = Patient(8), HandExecutor(100), HandExecutor(2)
        executors: dict[str, BaseExecutor] = {THREADS_EXECUTOR: self.threads}
        if not unstarted:
            executors |= {LOOP_EXECUTOR: self.loop, PROCESSES_EXECUTOR: self.processes}
        self.executors = executors
        self.node = Node(
            executors,
            clock=clock,
            queues={"q": limit},
            prepare=self._prepare,
            unstarted={LOOP_EXECUTOR: 100, PROCESSES_EXECUTOR: 2} if unstarted else None,
        )
        self.link = self.node.links["default"] = StoreLink(self.node, "default", self.store)
        for executor in (self.threads, self.loop, self.processes):
            executor.now = self.node.elapsed

    def add(
        self, number: int, word: str, executor: str | None = None, crashes: int = 0, frame: bytes | None = None
    ) -> None:
        """Enqueue runs whose function needs what the word says; the enqueuer knows `executor` of it."""
        start = self.clock.now() - SECOND
        runs = [
            Run(
                id=f"{word}-{n}",
                call=Call(work, name=word, frame=frame),
                queue="q",
                executor=executor,
                run_at=start + n,
                crashes=crashes,
            )
            for n in range(number)
        ]
        self.store.add_runs(runs)
        self.link.worker.look_everywhere()

    def _prepare(self, run: Run) -> Run:
        needed = needed_executor(run.name == "async", "process" if run.name == "process" or run.crashes else None)
        if needed == LOOP_EXECUTOR:
            self.executors[LOOP_EXECUTOR] = self.loop
        elif needed == PROCESSES_EXECUTOR:
            self.executors[PROCESSES_EXECUTOR] = self.processes
        return replace(run, executor=needed or THREADS_EXECUTOR)

    def count(self, status: Status) -> int:
        return self.store.stats(RunQuery(status=(status,))).matching


def test_a_coroutine_starts_though_all_threads_are_busy_and_many_runs_wait_for_them(clock: VirtualClock) -> None:
    queue = Queue(clock)
    queue.add(100, "thread")
    queue.link.worker()
    assert len(queue.threads.given) == 8
    queue.add(3, "async", LOOP_EXECUTOR)
    queue.add(3, "process", PROCESSES_EXECUTOR)
    queue.link.worker()
    assert (len(queue.threads.given), len(queue.loop.given), len(queue.processes.given)) == (8, 3, 2)
    assert queue.count(Status.PENDING) == 92 + 1


def test_executors_that_have_not_started_are_claimed_for(clock: VirtualClock) -> None:
    queue = Queue(clock, unstarted=True)
    queue.add(20, "thread")
    queue.add(1, "async", LOOP_EXECUTOR)
    queue.add(3, "process", PROCESSES_EXECUTOR)
    queue.link.worker()
    assert (len(queue.threads.given), len(queue.loop.given), len(queue.processes.given)) == (8, 1, 2)


def test_one_claim_serves_all_executors(clock: VirtualClock) -> None:
    queue = Queue(clock)
    queue.add(5, "thread")
    queue.add(5, "async", LOOP_EXECUTOR)
    queue.link.worker()
    [wants] = queue.store.wants
    assert sorted((*lanes, limit) for lanes, limit in wants) == [("q", 8), ("q:async", 100), ("q:process", 2)]
    assert (len(queue.threads.given), len(queue.loop.given)) == (5, 5)


def test_a_busy_lane_costs_no_further_claims_of_the_others(clock: VirtualClock) -> None:
    queue = Queue(clock)
    queue.add(100, "thread")
    for _ in range(5):
        queue.link.worker()
        queue.threads.end_all()
    assert queue.count(Status.SUCCEEDED) >= 24
    assert [[lanes for lanes, _ in wants] for wants in queue.store.wants[1:]] == [[["q"]]] * (
        len(queue.store.wants) - 1
    )


def test_the_delayed_runs_of_a_lane_start_in_time_behind_a_busy_one(clock: VirtualClock) -> None:
    queue = Queue(clock)
    start = clock.now()
    queue.store.add_runs(
        [Run(id="late", call=Call(work, name="async"), queue="q", executor=LOOP_EXECUTOR, run_at=start + SECOND)]
    )
    queue.add(1000, "thread")
    while not queue.loop.given and clock.now() < start + 3 * SECOND:
        for run_id in list(queue.threads.given)[:4]:
            queue.threads.end(run_id)
        queue.link.worker()
        clock.advance(0.02)
    assert start + SECOND <= clock.now() < start + SECOND + SECOND // 5
    assert queue.count(Status.PENDING) > 100


def test_a_run_whose_function_the_enqueuer_does_not_know_is_executed_where_it_belongs(clock: VirtualClock) -> None:
    queue = Queue(clock)
    queue.add(3, "async")
    queue.link.worker()
    assert (len(queue.threads.given), len(queue.loop.given)) == (0, 3)


def test_a_node_holds_no_more_than_fits_of_runs_that_were_in_another_lane(clock: VirtualClock) -> None:
    queue = Queue(clock)
    queue.add(500, "process")
    for _ in range(200):
        queue.link.worker()
    assert len(queue.processes.given) == 2
    assert len(queue.link.claims) == 2
    assert {run.lane for run in queue.store.find_runs(RunQuery(status=(Status.PENDING,)), limit=1000)} == {"q:process"}
    queue.add(1, "thread")
    queue.link.worker()
    assert len(queue.threads.given) == 1


def test_what_waits_behind_many_runs_that_have_to_run_alone_is_not_kept_waiting(clock: VirtualClock) -> None:
    queue = Queue(clock)
    queue.add(60, "suspect", crashes=1)
    queue.add(200, "thread")
    for _ in range(80):
        queue.link.worker()
        queue.threads.end_all()
    assert queue.count(Status.SUCCEEDED) == 200
    assert len(queue.processes.given) == 2


def test_the_limit_of_a_node_for_a_queue_holds_over_its_lanes(clock: VirtualClock) -> None:
    queue = Queue(clock, limit=3)
    queue.add(10, "thread")
    queue.add(10, "async", LOOP_EXECUTOR)
    started: set[str] = set()
    for _ in range(20):
        queue.link.worker()
        assert len(queue.threads.given) + len(queue.loop.given) <= 3
        started |= {run_id.partition("-")[0] for run_id in (*queue.threads.given, *queue.loop.given)}
        queue.threads.end_all()
        queue.loop.end_all()
    assert (queue.count(Status.SUCCEEDED), started) == (20, {"thread", "async"})


def test_runs_with_large_arguments_are_claimed_by_their_size_but_one_for_each_slot(clock: VirtualClock) -> None:
    queue = Queue(clock)
    held = []
    for word, number, size in (
        ("large", 100, MOST_CLAIMED_BYTES // 20),
        ("larger", 100, MOST_CLAIMED_BYTES // 4),
        ("small", 300, 100),
    ):
        queue.add(number, word, frame=bytes(size))
        while queue.count(Status.PENDING):
            queue.link.worker()
            held.append(len(queue.threads.given))
            queue.threads.end_all()
    assert held[:6] == [8, 20, 20, 20, 20, 12]
    assert held[7:19] == [8] * 12  # the first claim of the larger runs did not know their size
    assert max(held[19:]) > 50


def test_when_runs_take_longer_than_those_before_fewer_are_claimed_ahead(clock: VirtualClock) -> None:
    queue = Queue(clock)
    queue.add(5000, "thread")
    queue.node.pace.update(threads=0.001)
    queue.threads.slow = True
    queue.link.worker()
    assert queue.count(Status.RUNNING) > 100
    clock.advance(1.0)
    queue.link.worker()  # it gives back what has not started by now
    queue.link.worker()  # what was given back is settled
    assert queue.count(Status.RUNNING) == 8
    assert queue.node.free(THREADS_EXECUTOR) <= 0
