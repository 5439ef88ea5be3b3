"""Waiting for many runs: all of them are told about, and few are read."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

import pytest

from mainspring import Mainspring
from mainspring.app.waiting.waiter import FIRST_PAGE_RUNS, Waiter
from mainspring.core.run import Run, Status
from mainspring.errors import StoreUnavailable
from mainspring.jobstores.base import NodeInfo, RunStanding
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.testing.conformance.helpers import claim, make_run, succeed
from tests.app.kit import LIMIT, MakeApp

NODE = NodeInfo(id="n1", host="here", pid=1, started_at=0, queues=("mail",))


class CountingStore(MemoryJobStore):
    asked = 0

    read = 0

    def standings(self, run_ids: Sequence[str]) -> list[RunStanding | None]:
        self.asked += len(run_ids)
        read, found = self.read, super().standings(run_ids)
        self.read = read  # objects in memory are read for that, too
        return found

    def get_runs(self, run_ids: Sequence[str]) -> list[Run | None]:
        self.read += len(run_ids)
        return super().get_runs(run_ids)

    def end(self, number: int) -> None:
        assert all(self.settle([succeed(self, run) for run in claim(self, limit=number)]))


def add(store: MemoryJobStore, *runs: Run) -> list[str]:
    """Store runs; return their ids."""
    return [str(run_id) for run_id in store.add_runs(runs)]


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def ids(store: CountingStore) -> list[str]:
    return add(store, *(make_run(store, f"r{number:04}") for number in range(3000)))


def test_while_the_first_ones_wait_the_others_are_not_read_again(store: CountingStore, ids: list[str]) -> None:
    waiter = Waiter(ids)
    assert not waiter.look(store)
    assert store.asked == 3000
    waiter._all_at = float("inf")
    for _ in range(10):
        assert not waiter.look(store)
    assert store.asked == 3000 + 10 * FIRST_PAGE_RUNS


def test_what_has_ended_is_not_read_again(store: CountingStore, ids: list[str]) -> None:
    waiter = Waiter(ids)
    waiter._all_at = float("inf")
    store.end(2500)
    assert not waiter.look(store)
    store.asked = 0
    store.end(500)
    assert waiter.look(store)
    assert store.asked < 1000
    assert store.read == 3000  # each once, when it has ended
    assert [run.id for run in waiter.ended()] == ids
    assert {run.status for run in waiter.ended()} == {Status.SUCCEEDED}


class AwayStore(CountingStore):
    away = False

    def standings(self, run_ids: Sequence[str]) -> list[RunStanding | None]:
        if self.away:
            raise StoreUnavailable("nobody answers")
        return super().standings(run_ids)


def test_a_wait_goes_on_while_the_store_is_away(caplog: pytest.LogCaptureFixture) -> None:
    store = AwayStore()
    (run_id,) = add(store, make_run(store, "r"))
    waiter = Waiter([run_id], 60)
    for store.away in (True, True, False, True, False):
        assert not waiter.look(store)
    assert [record.message for record in caplog.records] == [
        "the store does not answer; the wait goes on: nobody answers"
    ] * 2
    store.end(1)
    assert waiter.look(store)


def test_a_wait_that_ends_while_the_store_is_away_says_so() -> None:
    store = AwayStore()
    waiter = Waiter(add(store, make_run(store, "r")), 60)
    assert not waiter.look(store)
    store.away, waiter._deadline = True, 0.0
    with pytest.raises(TimeoutError, match=r"has not ended in 60 s.*does not answer \(nobody answers\)"):
        waiter.look(store)


@pytest.mark.parametrize("timeout", [0, None])
def test_a_store_that_never_answers_is_why_a_wait_fails(timeout: float | None) -> None:
    store = AwayStore()
    store.away = True
    with pytest.raises(StoreUnavailable):
        Waiter(["r"], timeout).look(store)


def test_all_are_looked_at_again_after_a_while(store: CountingStore, ids: list[str]) -> None:
    waiter = Waiter([ids[-1], *ids[:-1]])
    assert not waiter.look(store)
    store.end(2999)
    waiter._all_at = 0.0
    assert not waiter.look(store)
    store.delete_runs(ids[:-1])
    store.end(1)
    assert waiter.look(store)
    assert len(waiter.ended()) == 3000


def test_a_time_out_says_how_many_have_really_not_ended(store: CountingStore, ids: list[str]) -> None:
    waiter = Waiter([ids[-1], *ids[:-1]], 60)
    assert not waiter.look(store)
    store.end(2990)
    waiter._all_at, waiter._deadline = float("inf"), 0.0
    with pytest.raises(TimeoutError, match="10 of 3000 runs have not ended in 60 s"):
        waiter.look(store)


def same(number: int) -> int:
    return number


def test_more_results_are_gathered_than_finished_runs_are_kept() -> None:
    app = Mainspring(MemoryJobStore(keep_runs=3))
    task = app.task(same)
    app.start(work=True)
    try:
        assert app.gather(task.call(number) for number in range(50)).result(timeout=LIMIT) == list(range(50))
    finally:
        app.stop()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it said at once what a waiter lacks."""
    monkeypatch.setattr("mainspring.app.waiting.waiter.WARN_AFTER_SECONDS", 0)


@pytest.mark.usefixtures("soon")
def test_who_waits_for_ever_is_told_that_nobody_serves_the_queue(
    store: CountingStore, caplog: pytest.LogCaptureFixture
) -> None:
    waiter = Waiter(add(store, make_run(store, "r1", queue="mail")))
    with caplog.at_level(logging.WARNING, "mainspring.app"):
        assert not waiter.look(store)
        assert not waiter.look(store)
    (text,) = caplog.messages
    assert text.startswith(
        "waiting for run r1, which has not started; no living worker serves the queue 'mail': start "
    )


@pytest.mark.usefixtures("soon")
def test_who_waits_for_ever_is_told_that_the_queue_is_paused(
    store: CountingStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.beat(NODE, 60)
    store.set_gate("queue:mail", 0)
    waiter = Waiter(add(store, make_run(store, "r1", queue="mail")))
    with caplog.at_level(logging.WARNING, "mainspring.app"):
        assert not waiter.look(store)
    (text,) = caplog.messages
    assert "the queue 'mail' is paused: app.resume_queue('mail')" in text


@pytest.mark.usefixtures("soon")
def test_who_waits_for_what_somebody_will_execute_is_not_warned(
    store: CountingStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.beat(NODE, 60)
    waiter = Waiter(add(store, make_run(store, "r1", queue="mail")))
    with caplog.at_level(logging.WARNING, "mainspring.app"):
        assert not waiter.look(store)
    assert caplog.messages == []


def test_when_all_threads_wait_for_other_runs_an_error_says_so(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mainspring.app.waiting.waiter.WARN_AFTER_SECONDS", 0.2)
    app, both = make_app(), threading.Barrier(2)

    @app.task
    def child() -> int:
        return 1

    @app.task
    def parent() -> int:
        both.wait(LIMIT)
        return child.enqueue().result(timeout=LIMIT)

    app.start(work=True, threads=2)
    parents = [parent.enqueue(), parent.enqueue()]
    said = "all 2 threads of this process are held by runs that wait for other runs"
    deadline = time.monotonic() + LIMIT
    while said not in caplog.text:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    told = [record for record in caplog.records if "are held by runs" in record.message]
    assert {record.levelname for record in told} == {"ERROR"}
    for run in app.find(task=child):
        app.cancel(run.id)
    assert {run.status for run in app.wait(parents, timeout=LIMIT)} == {Status.FAILED}


def test_a_run_that_waits_beside_a_free_thread_is_no_error(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mainspring.app.waiting.waiter.WARN_AFTER_SECONDS", 0.0)
    app = make_app()

    @app.task
    def child() -> int:
        return 1

    @app.task
    def parent() -> int:
        return child.enqueue().result(timeout=LIMIT)

    app.start(work=True, threads=2)
    assert parent.enqueue().result(timeout=LIMIT) == 1
    assert "are held by runs" not in caplog.text
