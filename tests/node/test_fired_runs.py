"""A job fired into a queue that the node serves: its run starts in a free slot at once, or waits in the queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any

import pytest
from msgspec.structs import replace

from mainspring.core.instants import from_us
from mainspring.core.job import Job
from mainspring.core.lanes import PROCESSES_EXECUTOR, THREADS_EXECUTOR, Want
from mainspring.core.plan import Firing
from mainspring.core.policy import Policy
from mainspring.core.run import Call, Report, Run, Status
from mainspring.errors import StoreUnavailable
from mainspring.executors.execution import MayStart, may_always_start
from mainspring.jobstores.base import Answers, ClaimedRuns, RunQuery
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.node.node import Node
from mainspring.node.store_link import StoreLink
from mainspring.testing.clock import VirtualClock
from mainspring.triggers.interval import IntervalTrigger
from tests.node.bench import HandExecutor, work

SLOTS = 3


class CountingStore(MemoryJobStore):
    """Counts claims, may refuse a fire, may lose the reply to one, and calls a function after each claim."""

    claims = 0
    fails_before_fire: Exception | None = None
    fails_after_fire: Exception | None = None
    after_claim: Callable[[], object] = int

    def claim(self, wants: Sequence[Want], *, node: str, token: str, lease: float) -> ClaimedRuns:
        self.claims += 1
        claimed = super().claim(wants, node=node, token=token, lease=lease)
        self.after_claim()
        return claimed

    def fire(self, firings: Sequence[Firing], lease: float) -> Answers[tuple[str, ...] | None]:
        error, self.fails_before_fire = self.fails_before_fire, None
        if error is not None:
            raise error
        answers = super().fire(firings, lease)
        error, self.fails_after_fire = self.fails_after_fire, None
        if error is not None:
            raise error
        return answers


class Threads(HandExecutor):
    """Executes as many runs as it has slots; the others wait, and can be given back."""

    given_at = 0

    def submit(
        self, runs: Sequence[Run], report: Callable[[Report], None], may_start: MayStart = may_always_start
    ) -> None:
        self.given_at = self.now()
        super().submit(runs, report, may_start)

    def withdraw(self, older_than: int | None = None) -> list[Run]:
        if older_than is not None and self.given_at >= older_than:
            return []
        return [self.given.pop(run_id)[0] for run_id in list(self.given)[self.slots :]]


class Bench:
    """A node that serves the queue `mail` with three threads and one process; its ticks are called by hand."""

    def __init__(self, clock: VirtualClock, **options: Any) -> None:
        self.clock, self.store = clock, CountingStore(clock)
        self.threads, self.processes = Threads(SLOTS), HandExecutor(1)
        self.node = Node(
            {THREADS_EXECUTOR: self.threads, PROCESSES_EXECUTOR: self.processes},
            clock=clock,
            timezone=UTC,
            prepare=lambda run: replace(run, executor=run.executor or THREADS_EXECUTOR),
            executor_for=lambda call, policy: PROCESSES_EXECUTOR if policy.isolation else None,
            **{"queues": {"mail": None}, **options},
        )
        self.link = self.node.links["default"] = StoreLink(self.node, "default", self.store)
        for executor in (self.threads, self.processes):
            executor.now = self.node.elapsed

    def add_jobs(self, number: int, queue: str = "mail", policy: Policy | None = None, name: str = "job") -> None:
        now = self.clock.now()
        for n in range(number):
            trigger = IntervalTrigger(hours=1, start_date=from_us(now), timezone="UTC")
            call = Call(work, name="work")
            options: dict[str, Any] = {} if policy is None else {"policy": policy}
            self.store.add_job(Job(f"{name}-{n}", call, trigger, at=now, executor="queue", queue=queue, **options))

    def statuses(self) -> list[Status]:
        return sorted(run.status for run in self.store.find_runs(RunQuery()))


@pytest.fixture
def bench(clock: VirtualClock) -> Bench:
    return Bench(clock)


def test_a_fired_run_starts_in_a_free_slot_without_a_claim(bench: Bench) -> None:
    bench.add_jobs(1)
    bench.link.scheduler()
    [(run, _)] = bench.threads.given.values()
    assert (run.queue, run.executor, run.attempt, run.node) == ("mail", THREADS_EXECUTOR, 1, bench.node.id)
    bench.link.worker.claims()
    assert bench.store.claims == 0
    bench.threads.end_all()
    bench.link.worker.settles()
    assert bench.statuses() == [Status.SUCCEEDED]


def test_fires_beyond_the_free_slots_wait_and_are_claimed(bench: Bench) -> None:
    bench.add_jobs(SLOTS + 2)
    bench.link.scheduler()
    assert len(bench.threads.given) == SLOTS
    assert bench.statuses() == [Status.PENDING] * 2 + [Status.RUNNING] * SLOTS
    bench.threads.end_all()
    bench.link.worker()
    bench.link.worker()
    assert len(bench.threads.given) == 2


def test_a_run_fired_ahead_of_the_slots_is_given_back_if_it_has_to_wait(bench: Bench) -> None:
    bench.node.pace[THREADS_EXECUTOR] = 0.01  # the runs before were quick; these are not
    bench.link.work.step()
    bench.add_jobs(SLOTS + 2)
    bench.link.work.wake(bench.link.scheduler)
    bench.link.work.step()
    assert len(bench.threads.given) == SLOTS + 2
    bench.clock.advance(1.5)
    bench.link.work.step()
    bench.link.worker.settles()
    assert len(bench.threads.given) == SLOTS
    assert bench.statuses() == [Status.PENDING] * 2 + [Status.RUNNING] * SLOTS


def test_a_fire_into_another_executor_takes_its_slots(bench: Bench) -> None:
    bench.add_jobs(2, policy=Policy(isolation="process"))
    bench.link.scheduler()
    assert (len(bench.processes.given), len(bench.threads.given)) == (1, 0)
    assert bench.statuses() == [Status.PENDING, Status.RUNNING]


def test_runs_that_wait_already_go_first(bench: Bench) -> None:
    now = bench.clock.now()
    waiting = [Run(id=f"r{n}", call=Call(work, name="work"), queue="mail", run_at=now - 1) for n in range(SLOTS)]
    bench.store.add_runs(waiting)
    bench.link.worker.look_everywhere()
    bench.add_jobs(1)
    bench.link.scheduler()
    bench.link.worker.claims()
    assert list(bench.threads.given) == [run.id for run in waiting]
    assert bench.statuses() == [Status.PENDING] + [Status.RUNNING] * SLOTS


def test_fires_of_a_higher_priority_get_the_free_slots_first(bench: Bench) -> None:
    bench.add_jobs(SLOTS)
    bench.add_jobs(1, policy=Policy(priority=5), name="urgent")
    bench.link.scheduler()
    assert [run.job_id for run, _ in bench.threads.given.values()] == ["urgent-0", "job-0", "job-1"]


def test_a_run_that_waits_in_another_queue_of_the_executor_goes_first(clock: VirtualClock) -> None:
    bench = Bench(clock, queues={"mail": None, "post": None})
    policy = Policy(retries=1, backoff=(1.0,))
    bench.store.add_runs([Run(id="r", call=Call(work, name="work"), queue="post", policy=policy, run_at=clock.now())])
    bench.link.worker.look_everywhere()
    bench.link.worker.claims()
    bench.threads.end("r", ValueError())
    bench.link.worker()
    bench.threads.slots = 1
    bench.node.pace.clear()
    clock.advance(2)
    bench.add_jobs(1)
    bench.link.scheduler()
    bench.link.worker.claims()
    assert list(bench.threads.given) == ["r"]


@pytest.mark.parametrize("queues", [{"other": None}, {"mail": 2}])
def test_a_fire_into_a_queue_that_the_node_limits_or_does_not_serve_waits(
    clock: VirtualClock, queues: dict[str, int | None]
) -> None:
    bench = Bench(clock, queues=queues)
    bench.add_jobs(3)
    bench.link.scheduler()
    assert bench.statuses() == [Status.PENDING] * 3
    bench.link.worker.claims()
    assert len(bench.threads.given) == queues.get("mail", 0)


@pytest.mark.parametrize("limit", [0, 1])
def test_a_fire_into_a_queue_that_is_paused_or_limited_waits(bench: Bench, limit: int) -> None:
    bench.store.set_gate("queue:mail", limit)
    bench.add_jobs(2)
    bench.link.scheduler()
    assert (bench.statuses(), bench.link.claims, bench.link.in_flight) == ([Status.PENDING] * 2, {}, {})
    bench.link.worker.claims()
    assert len(bench.threads.given) == limit
    bench.store.set_gate("queue:mail", None)
    bench.clock.advance(1)
    bench.link.worker.look_everywhere()
    bench.link.worker.claims()
    assert len(bench.threads.given) == 2


def test_runs_leased_by_a_fire_whose_reply_was_lost_are_asked_for_again(bench: Bench) -> None:
    bench.add_jobs(2)
    bench.store.fails_after_fire = StoreUnavailable("the reply was lost")
    with pytest.raises(StoreUnavailable):
        bench.link.scheduler()
    assert bench.threads.given == {}
    bench.link.worker.claims()
    assert len(bench.threads.given) == 2
    assert bench.statuses() == [Status.RUNNING] * 2


def test_runs_leased_by_a_fire_that_failed_halfway_are_asked_for_at_once(bench: Bench) -> None:
    bench.link.work.step()
    bench.add_jobs(2)
    bench.store.fails_after_fire = ValueError("the answer cannot be read")
    bench.link.work.wake(bench.link.scheduler)
    bench.link.work.step()
    assert len(bench.threads.given) == 2


def test_a_run_that_ends_while_the_node_asks_for_it_begins_only_once(bench: Bench) -> None:
    def end_all() -> None:
        bench.threads.end_all()
        bench.link.worker.settles()  # as the monitor's thread does, before the answer is read

    bench.add_jobs(2)
    bench.store.fails_before_fire = ValueError("one of the steps cannot be written")
    bench.link.scheduler()
    assert (len(bench.threads.given), len(bench.link.worker.uncertain)) == (2, 1)
    bench.store.after_claim = end_all
    bench.link.worker.claims()
    assert (bench.threads.given, bench.link.claims, bench.link.worker.uncertain) == ({}, {}, [])
    assert bench.statuses() == [Status.SUCCEEDED] * 2


def test_asking_for_the_runs_of_a_fire_claims_nothing_more(bench: Bench) -> None:
    bench.store.add_runs([Run(id="r", call=Call(work, name="work"), queue="mail", run_at=bench.clock.now())])
    bench.link.worker.uncertain.append(bench.node.new_token())  # the store was away: nothing was fired under it
    bench.node.paused = True
    bench.link.worker.claims()
    assert (bench.statuses(), bench.link.worker.uncertain) == ([Status.PENDING], [])


class Watching:
    """A watcher that lets the process execute two more runs, and notes what it hears."""

    steady_since: float | None = None
    began_at = 0.0
    runs_left: int | None = 2

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.heard: list[tuple[str, Any]] = []

    def stop_all(self) -> None: ...

    def claiming(self, node: str, token: str, lanes: Sequence[str]) -> None:
        assert self.bench.store.find_runs(RunQuery()) == []
        self.heard.append((token, list(lanes)))

    def claimed(self, runs: Sequence[Run]) -> None:
        assert self.bench.threads.given == {}
        self.heard.append(("claimed", {run.token for run in runs}))

    def ended(self, run_ids: Sequence[str]) -> None: ...


def test_the_watcher_hears_of_the_token_before_the_fire_and_of_the_runs_before_they_start(bench: Bench) -> None:
    bench.node.watcher = watching = Watching(bench)
    bench.add_jobs(SLOTS)
    bench.link.scheduler()
    (token, lanes), (_, tokens) = watching.heard
    assert (lanes, tokens) == (["mail"], {token})
    assert len(bench.threads.given) == watching.runs_left
