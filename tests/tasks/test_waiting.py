"""Whoever waits for a group is woken by the ends of runs, and asks the store nothing in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from mainspring import Mainspring, tasks
from mainspring.app.waiting import hub
from mainspring.errors import StoreUnavailable
from mainspring.jobstores.base import CHANGES, ENDS, RunQuery, Stats
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.tasks import Broker, FetchedTask, async_task, fetch_group, get_broker, result_group
from tests.tasks import functions

LIMIT = 30.0


class CountingStore(MemoryJobStore):
    """Counts the questions about groups and the times somebody listened for ends to no avail or with success."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = self.heard = 0
        self.listens = threading.Event()
        self.deaf = self.away = False

    def stats(self, query: RunQuery | None = None) -> Stats:
        self.counts += 1
        if self.away:
            raise StoreUnavailable("nobody answers")
        return super().stats(query)

    def wait(self, cursor: int, timeout: float, topic: str = CHANGES) -> int:
        if topic != ENDS:
            return super().wait(cursor, timeout, topic)
        self.listens.set()
        if self.deaf:
            time.sleep(timeout)
            return cursor
        try:
            return super().wait(cursor, timeout, topic)
        finally:
            self.heard += 1


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def broker(store: CountingStore) -> Iterator[Broker]:
    with Mainspring(store) as app:
        tasks.set_app(app)
        yield get_broker("hand")


def take(broker: Broker, number: int) -> list[str]:
    """Enqueue calls in the group `g`, and start them by hand."""
    made = {async_task(functions.nothing, group="g", cluster="hand") for _ in range(number)}
    taken = [task_id for task_id, _ in broker.dequeue(number)]
    assert set(taken) == made
    return taken


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def begin(
    threads: ThreadPoolExecutor, store: CountingStore, wait: float = -1, count: int | None = None
) -> Future[list[FetchedTask]]:
    """Wait for the group in a thread; return once the hub listens for ends."""
    store.listens.clear()
    waiting = threads.submit(fetch_group, "g", wait=wait, count=count)
    assert store.listens.wait(LIMIT)
    return waiting


def test_a_waiting_process_asks_only_after_it_was_woken(
    store: CountingStore, broker: Broker, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "STALE_SECONDS", LIMIT)
    first, second = take(broker, 2)
    waiting = begin(threads, store)
    assert broker.acknowledge(first)
    assert not waiting.done()
    assert broker.acknowledge(second)
    assert {task.id for task in waiting.result(LIMIT)} == {first, second}
    assert store.heard
    assert store.counts <= hub.LOOKS_BEFORE_JOINING + store.heard + 1


def test_waiting_for_a_second_costs_a_handful_of_questions(store: CountingStore, broker: Broker) -> None:
    take(broker, 1)
    assert result_group("g", wait=1000) == []
    assert store.counts <= 9  # 0.05, 0.25 and 1.05 s after the first, by the waiter itself, and by its hub once more


def test_a_count_is_waited_for_though_its_runs_come_later(
    store: CountingStore, broker: Broker, threads: ThreadPoolExecutor
) -> None:
    [first] = take(broker, 1)
    waiting = begin(threads, store, count=2)
    assert broker.acknowledge(first)
    [second] = take(broker, 1)
    assert broker.acknowledge(second)
    assert [task.id for task in waiting.result(LIMIT)] == [first, second]


def test_many_waiters_for_groups_share_one_listener(
    store: CountingStore, broker: Broker, threads: ThreadPoolExecutor
) -> None:
    before = {thread for thread in threading.enumerate() if thread.name == "mainspring-ends"}
    [run] = take(broker, 1)
    waits = [begin(threads, store) for _ in range(3)]
    listening = {thread for thread in threading.enumerate() if thread.name == "mainspring-ends"} - before
    assert len(listening) == 1
    assert broker.acknowledge(run)
    assert [[task.id for task in waiting.result(LIMIT)] for waiting in waits] == [[run]] * 3


def test_an_end_that_nobody_tells_is_found(store: CountingStore, broker: Broker, threads: ThreadPoolExecutor) -> None:
    store.deaf = True
    [run] = take(broker, 1)
    waiting = begin(threads, store)
    assert broker.acknowledge(run)
    assert [task.id for task in waiting.result(LIMIT)] == [run]


def test_an_outage_does_not_end_the_wait(store: CountingStore, broker: Broker, threads: ThreadPoolExecutor) -> None:
    [run] = take(broker, 1)
    waiting = begin(threads, store)
    store.away = True
    asked = store.counts
    while store.counts < asked + 2:
        time.sleep(0.001)
    assert broker.acknowledge(run)
    store.away = False
    assert [task.id for task in waiting.result(LIMIT)] == [run]


@pytest.mark.parametrize("wait", [-1, 50])
def test_a_store_that_never_answered_is_an_error(store: CountingStore, broker: Broker, wait: int) -> None:
    store.away = True
    with pytest.raises(StoreUnavailable):
        fetch_group("g", wait=wait)
