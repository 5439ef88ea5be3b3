"""What a node makes of the changes that a store tells: it looks for what they may be about, once, and misses none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from mainspring.core.lanes import Want
from mainspring.core.run import Call, Run
from mainspring.errors import StoreUnavailable
from mainspring.jobstores.base import RUNS_STEP, ClaimedRuns, DuePage
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.node.watch.changes import StoreListener
from mainspring.testing.clock import VirtualClock
from tests.node.bench import Bench, work

TIMEOUT = 60.0


class NotedStore(MemoryJobStore):
    """Notes the looks of its node; something may happen after a look and before its answer arrives."""

    looks: list[str]
    meanwhile: Callable[[], object] | None = None

    def claim(self, wants: Sequence[Want], *, node: str, token: str, lease: float) -> ClaimedRuns:
        self.looks.append("claim")
        claimed = super().claim(wants, node=node, token=token, lease=lease)
        self._act()
        return claimed

    def due(self, limit: int, hold: float) -> DuePage:
        self.looks.append("due")
        page = super().due(limit, hold)
        self._act()
        return page

    def _act(self) -> None:
        act, self.meanwhile = self.meanwhile, None
        if act is not None:
            act()


class ListeningBench(Bench):
    """A node that hears of changes when the test lets it."""

    store: NotedStore

    def __init__(self, clock: VirtualClock, store: NotedStore) -> None:
        super().__init__(clock, store)
        store.looks = []
        self.listener = StoreListener(self.link)
        self.cursor = store.wait(0, 0)
        self.link.work.step()
        self.clock.advance(1)  # no hint has to wait for other nodes
        store.looks.clear()

    def hear(self) -> list[str]:
        """Follow what the store tells; return the looks that this led to."""
        heard = self.store.wait(self.cursor, 0)
        if heard != self.cursor:
            self.listener.follow(self.cursor, heard)
            self.cursor = heard
        looks = self.store.looks[:]
        self.store.looks.clear()
        return looks

    def enqueue(self, run_id: str) -> None:
        self.store.add_runs([Run(id=run_id, call=Call(work, name="work"), queue=".default", run_at=self.clock.now())])


@pytest.fixture
def bench(clock: VirtualClock) -> ListeningBench:
    return ListeningBench(clock, NotedStore(clock))


def test_a_change_of_runs_lets_nobody_look_for_due_jobs(bench: ListeningBench) -> None:
    bench.enqueue("r")
    assert bench.hear() == ["claim"]
    assert list(bench.executor.given) == ["r"]


def test_a_change_of_jobs_fires_what_is_due_and_then_claims(bench: ListeningBench) -> None:
    bench.add("j")
    assert bench.hear() == ["due", "claim"]
    assert len(bench.executor.given) == 1


def test_changes_of_jobs_and_runs_that_are_heard_together_are_both_followed(bench: ListeningBench) -> None:
    bench.enqueue("before")
    bench.add("j")
    bench.enqueue("after")
    assert bench.hear() == ["due", "claim"]
    assert len(bench.executor.given) == 3


def test_a_store_that_does_not_tell_topics_may_mean_anything(bench: ListeningBench) -> None:
    bench.store.tells_topics = False
    bench.enqueue("r")
    assert bench.hear() == ["due", "claim"]


def test_a_store_that_does_not_know_its_cursor_is_asked_for_each_change(
    bench: ListeningBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.store, "cursor", lambda: None)
    bench.enqueue("r")
    bench.link.worker.look_now([".default"])
    bench.link.work.step()
    assert bench.hear() == ["claim", "claim"]
    bench.clock.advance(1)
    bench.add("j")
    bench.node.wake_for("default", 0)
    bench.link.work.step()
    assert bench.hear() == ["due", "due", "claim"]


def test_who_was_told_by_its_own_process_does_not_look_again(bench: ListeningBench) -> None:
    bench.enqueue("r")
    bench.link.worker.look_now([".default"])
    bench.link.work.step()
    assert bench.hear() == ["claim"]
    bench.add("j")
    bench.node.wake_for("default", 0)
    bench.link.work.step()
    assert bench.hear() == ["due", "claim"]


def test_who_has_heard_is_not_told_again_by_its_own_process(bench: ListeningBench) -> None:
    bench.enqueue("r")
    assert bench.hear() == ["claim"]
    bench.link.worker.look_now([".default"])
    bench.link.work.step()
    bench.add("j")
    assert bench.hear() == ["due", "claim"]
    bench.node.wake_for("default", 0)
    bench.link.work.step()
    assert bench.hear() == []


def test_the_change_that_a_fire_makes_is_not_followed_twice(bench: ListeningBench) -> None:
    bench.executor.slots = 0
    bench.add("j")
    assert bench.hear() == ["due"]
    bench.executor.slots = 1
    assert bench.hear() == []
    bench.link.wake_worker()
    bench.link.work.step()
    assert len(bench.executor.given) == 1


@pytest.mark.parametrize("told", [False, True])
def test_a_run_that_comes_while_a_claim_is_under_way_is_claimed_next(bench: ListeningBench, told: bool) -> None:
    def come() -> None:
        bench.enqueue("late")
        if told:
            bench.link.worker.look_now([".default"])

    bench.enqueue("early")
    bench.store.meanwhile = come
    assert bench.hear()[0] == "claim"
    bench.link.work.step()
    bench.hear()
    assert set(bench.executor.given) == {"early", "late"}


@pytest.mark.parametrize("told", [False, True])
def test_a_job_that_comes_while_due_ones_are_looked_for_is_fired_next(bench: ListeningBench, told: bool) -> None:
    def come() -> None:
        bench.add("late")
        if told:
            bench.node.wake_for("default", bench.clock.now())

    bench.add("early")
    bench.store.meanwhile = come
    assert bench.hear()[0] == "due"
    bench.link.work.step()
    bench.hear()
    assert len(bench.executor.given) == 2


def test_a_change_that_is_heard_while_the_claim_waits_for_a_slot_is_not_forgotten(bench: ListeningBench) -> None:
    bench.executor.slots = 1
    bench.enqueue("first")
    bench.hear()
    bench.enqueue("second")
    assert bench.hear() == []
    bench.executor.end("first")
    bench.link.work.step()
    bench.link.work.step()
    assert list(bench.executor.given) == ["second"]


def test_a_look_that_failed_does_not_count_as_a_look(bench: ListeningBench) -> None:
    def fail() -> None:
        raise StoreUnavailable("no answer")

    bench.add("j")
    bench.store.meanwhile = fail
    assert bench.hear() == ["due", "claim"]
    bench.node.wake_for("default", bench.clock.now())
    bench.link.work.step()
    assert bench.hear() == ["due"]


def test_a_node_that_wakes_up_for_others_in_vain_is_prompt_for_its_own_runs(bench: ListeningBench) -> None:
    bench.link.worker.look_everywhere()
    bench.link.work.call_now(bench.link.worker.claims)  # it finds nothing, so it lets others go first
    bench.store.looks.clear()
    bench.enqueue("r")
    assert bench.hear() == []
    bench.link.worker.look_now([".default"])
    bench.link.work.step()
    assert list(bench.executor.given) == ["r"]


def test_many_changes_of_runs_are_no_change_of_jobs(bench: ListeningBench) -> None:
    before = bench.store.wait(0, 0)
    for number in range(3):
        bench.enqueue(f"r{number}")
    assert (bench.store.wait(0, 0) - before) % RUNS_STEP == 0


def test_a_run_of_which_no_hint_tells_is_found_within_five_seconds(bench: ListeningBench) -> None:
    bench.enqueue("silent")
    for _ in range(15):  # other work wakes the worker again and again, and must not put the look off
        bench.clock.advance(0.2)
        bench.link.work.wake(bench.link.worker.claims)
        delay = bench.link.work.step()
    assert bench.executor.given == {}
    bench.clock.advance(delay)
    bench.link.work.step()
    assert list(bench.executor.given) == ["silent"]


def test_a_listener_hears_a_store_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    store = NotedStore()
    store.looks = []
    bench = Bench(VirtualClock(), store)
    claimed = threading.Event()
    monkeypatch.setattr(bench.executor, "submit", lambda *args: claimed.set())
    listener = StoreListener(bench.link)
    bench.link.work.step()
    listener.start()
    try:
        store.add_runs([Run(id="r", call=Call(work, name="work"), queue=".default", run_at=store.beat())])
        assert claimed.wait(TIMEOUT)
    finally:
        bench.node.draining = True
        store.shutdown()
        listener.join()
