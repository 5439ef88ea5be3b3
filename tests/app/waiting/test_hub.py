"""One listener for all waiters of a process, woken by ends; whoever is not told looks by itself."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import redis

from mainspring import Mainspring
from mainspring.app.waiting import hub
from mainspring.app.waiting.waiter import Waiter
from mainspring.core.run import Run
from mainspring.errors import RunNotFound, StoreUnavailable
from mainspring.jobstores.base import CHANGES, JobStore, RunQuery, RunStanding, Stats
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.testing.conformance.helpers import add_run, claim, make_run, start, succeed
from tests.app.kit import LIMIT


class CountingStore(MemoryJobStore):
    """Counts the calls of waiters."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = self.reads = self.waits = 0
        self.deaf = self.away = False

    def standings(self, run_ids: Sequence[str]) -> list[RunStanding | None]:
        self.looks += 1
        if self.away:
            raise StoreUnavailable("nobody answers")
        runs = MemoryJobStore.get_runs(self, run_ids)
        return [None if run is None else RunStanding(run.status, run.refused) for run in runs]

    def get_runs(self, run_ids: Sequence[str]) -> list[Run | None]:
        self.reads += 1
        return super().get_runs(run_ids)

    def wait(self, cursor: int, timeout: float, topic: str = CHANGES) -> int:
        self.waits += 1
        if self.deaf:
            raise StoreUnavailable("nobody listens")
        return super().wait(cursor, timeout, topic)

    def end(self, *runs: Run) -> None:
        assert all(self.settle([succeed(self, run) for run in runs]))


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(20) as threads:
        yield threads


def begin(threads: ThreadPoolExecutor, store: JobStore, *runs: Run, timeout: float = LIMIT) -> Future[list[str]]:
    """Wait for runs in a thread."""

    def wait() -> list[str]:
        waiter = Waiter([run.id for run in runs], timeout)
        hub.wait(lambda: store, waiter)
        return [run.id for run in waiter.ended()]

    return threads.submit(wait)


def seated(store: JobStore, number: int) -> None:
    """Return when that many waiters sit at the hub, and it has looked for them."""
    its, deadline = hub.hub_of(store), time.monotonic() + LIMIT
    while len(its._seats) < number:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    looks = its.looks
    while its.looks < looks + 1:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def listeners() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "mainspring-ends"}


def test_waiting_for_three_seconds_costs_a_handful_of_reads(store: CountingStore) -> None:
    run = start(store)
    with pytest.raises(TimeoutError):
        hub.wait(lambda: store, Waiter([run.id], 3.0))
    assert store.looks <= 9
    assert store.waits <= 9
    assert store.reads == 1  # to say in the error how far the run is


def test_who_waits_alone_and_is_told_of_an_end_reads_the_record_at_once(store: CountingStore) -> None:
    run, other = start(store), start(store)
    seats = [hub.Seat(Waiter([each.id], LIMIT), list) for each in (run, other)]
    assert not hub.ask_together(store, seats[:1], reported=True)
    assert (store.looks, store.reads, seats[0].is_called) == (0, 1, False)
    assert not hub.ask_together(store, seats, reported=True)
    assert (store.looks, store.reads) == (1, 1)
    store.end(run)
    assert hub.ask_together(store, seats[:1], reported=True)
    assert (store.looks, store.reads, seats[0].ended) == (1, 2, True)
    store.end(other)
    assert hub.ask_together(store, seats[1:])
    assert (store.looks, store.reads, seats[1].ended) == (2, 3, True)


def test_a_thousand_waiters_need_one_listener_and_no_thread_of_their_own(store: CountingStore) -> None:
    runs = [add_run(store) for _ in range(1000)]
    before = listeners()

    async def wait() -> None:
        waiters = [Waiter([run.id], LIMIT) for run in runs]
        waits = asyncio.gather(*(hub.wait_async(lambda: store, waiter) for waiter in waiters))
        await asyncio.to_thread(seated, store, 1000)
        assert len(listeners() - before) == 1
        store.looks = store.reads = 0
        store.end(*claim(store))
        await waits
        assert [waiter.ended()[0].id for waiter in waiters] == [run.id for run in runs]

    asyncio.run(wait())
    assert store.looks < 20
    assert store.reads < 20


def test_a_thousand_waiters_in_vain_are_warned_once(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runs = [add_run(store) for _ in range(1000)]
    asked = 0

    def stats(query: RunQuery | None = None) -> Stats:
        nonlocal asked
        asked += 1
        return MemoryJobStore.stats(store, query)

    monkeypatch.setattr(store, "stats", stats)

    async def wait() -> None:
        waiters = [Waiter([run.id], LIMIT) for run in runs]
        waits = asyncio.gather(*(hub.wait_async(lambda: store, waiter) for waiter in waiters))
        await asyncio.to_thread(seated, store, 1000)
        asked_before, store.reads = asked, 0
        caplog.clear()
        for waiter in waiters:
            waiter.warns_at = 0.0
        while not caplog.messages:
            await asyncio.sleep(0.001)
        await asyncio.to_thread(seated, store, 1000)
        assert asked - asked_before == 1
        assert store.reads == 1
        store.end(*claim(store))
        await waits

    asyncio.run(wait())
    [text] = caplog.messages
    assert " and 49 others, which has not started; no living worker serves the queue 'default'" in text


@pytest.mark.parametrize("url", ["postgresql", "redis"], indirect=True)
def test_a_thousand_waiters_have_one_connection_that_listens(app: Mainspring, url: str) -> None:
    store = app.store
    runs = [make_run(store) for _ in range(1000)]
    store.add_runs(runs)
    before = listening(url)

    async def wait() -> None:
        waits = asyncio.gather(*(app.aio.wait([run.id], LIMIT) for run in runs))
        await asyncio.to_thread(seated, store, 1000)
        assert listening(url) - before == 1
        await asyncio.to_thread(store.settle, [succeed(store, run) for run in claim(store)])
        await waits

    asyncio.run(wait())


def listening(url: str) -> int:
    """Count the connections of a server that listen for ends."""
    if url.startswith("redis"):
        with redis.Redis.from_url(url) as client:
            return len(client.client_list(_type="pubsub"))
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        found = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN %'").fetchone()
        assert found is not None
        return int(found[0])


def test_threads_that_wait_share_their_looks(store: CountingStore, threads: ThreadPoolExecutor) -> None:
    runs = [start(store) for _ in range(20)]
    waits = [begin(threads, store, run) for run in runs]
    seated(store, 20)
    store.looks = store.reads = 0
    store.end(*runs)
    assert [wait.result(LIMIT) for wait in waits] == [[run.id] for run in runs]
    assert store.looks < 10
    assert store.reads < 10


def test_a_run_that_is_deleted_ends_the_wait_of_its_waiter_only(
    store: CountingStore, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, stays = start(store), start(store)
    waits = [begin(threads, store, gone), begin(threads, store, stays)]
    seated(store, 2)
    monkeypatch.setattr(store, "get_runs", lambda ids: [None if i == gone.id else store._runs.get(i) for i in ids])
    store.end(gone)
    with pytest.raises(RunNotFound):
        waits[0].result(LIMIT)
    store.end(stays)
    assert waits[1].result(LIMIT) == [stays.id]


def test_a_hub_that_cannot_listen_looks_by_itself(store: CountingStore, threads: ThreadPoolExecutor) -> None:
    store.deaf = True
    run = start(store)
    wait = begin(threads, store, run)
    seated(store, 1)
    store.end(run)
    assert wait.result(LIMIT) == [run.id]
    assert hub.hub_of(store)._longest_pause == hub.UNREPORTED_PAUSE_SECONDS  # from then on it looks more often
    store.deaf = False
    run = start(store)
    wait = begin(threads, store, run)
    seated(store, 1)
    store.end(run)
    assert wait.result(LIMIT) == [run.id]


def test_an_outage_is_reported_once_for_all_waiters(
    store: CountingStore, threads: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    runs = [start(store) for _ in range(5)]
    waits = [begin(threads, store, run) for run in runs]
    seated(store, 5)
    store.away = True
    seated(store, 5)
    seated(store, 5)
    store.away = False
    store.end(*runs)
    assert [wait.result(LIMIT) for wait in waits] == [[run.id] for run in runs]
    assert caplog.messages == ["the store does not answer; the wait goes on: nobody answers"]


def test_without_a_thread_for_the_hub_each_waiter_looks_by_itself(
    store: CountingStore, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "STALE_SECONDS", 0.05)
    monkeypatch.setattr(hub.EndHub, "_serve", lambda self, store: None)
    run = start(store)
    wait = begin(threads, store, run)
    while store.looks < 3:
        time.sleep(0.001)
    store.end(run)
    assert wait.result(LIMIT) == [run.id]


def test_a_cancelled_wait_leaves_the_hub(store: CountingStore) -> None:
    run = start(store)

    async def wait() -> None:
        waiting = asyncio.create_task(hub.wait_async(lambda: store, Waiter([run.id])))
        await asyncio.to_thread(seated, store, 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(wait())
    assert not hub.hub_of(store)._seats


def test_a_closed_app_has_no_listener_that_opens_its_store(tmp_path: Path) -> None:
    app = Mainspring(f"sqlite:///{tmp_path}/jobs.db")
    store = app.store
    run = start(store)
    with pytest.raises(TimeoutError):
        app.wait([run.id], 0.1)
    thread = hub.hub_of(store)._thread
    assert thread is not None
    app.close()
    thread.join(LIMIT)
    assert not thread.is_alive()
    assert store._opened is None  # type: ignore[attr-defined]
    assert not (tmp_path / "jobs.db-wake").exists()
