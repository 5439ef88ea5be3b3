"""Changes and ends of runs are told to other processes.

A waiter outlives its listener's connection, a fork and a dead neighbour.

Two store objects of one database are to each other as two processes are.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from mainspring.app.waiting import hub
from mainspring.app.waiting.waiter import Waiter
from mainspring.core.run import Run
from mainspring.jobstores.base import CHANGES, ENDS, RUNS_STEP, JobStore
from mainspring.jobstores.redis import RedisJobStore
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.testing.conformance.helpers import add_job, add_run, new_id, start, succeed

PATIENCE_SECONDS = 90.0
Opener = Callable[[], Any]


@pytest.fixture
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens stores of one place, and closes them."""
    kind, name = request.param, new_id("ends").replace("-", "_")
    url = f"sqlite:///{tmp_path}/jobs.db"
    if kind != "sqlite":
        url = request.getfixturevalue(f"{kind}_server").url
    opened: list[JobStore] = []

    def open_() -> JobStore:
        store = RedisJobStore(url=url, name=name) if kind == "redis" else SQLAlchemyJobStore(url, tablename=name)
        opened.append(store)
        return store

    yield open_
    for store in opened:
        store.shutdown()


def on(*kinds: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("opener", kinds, indirect=True)


def quiet(store: JobStore, topic: str = ENDS) -> int:
    """Listen until nothing is told any more; return the cursor."""
    cursor = store.wait(0, 0.1, topic)
    while (later := store.wait(cursor, 0.1, topic)) != cursor:
        cursor = later
    return cursor


def end(store: JobStore, *runs: Run) -> None:
    assert all(store.settle([succeed(store, run) for run in runs]))


def count_words(store: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note in a list whenever a store tells other processes of an end."""
    said: list[str] = []
    monkeypatch.setattr(store._open().ends, "tell", lambda step: said.append("end"))
    return said


@on("sqlite", "postgresql", "mariadb", "redis")
def test_another_process_is_told_whether_a_change_concerns_jobs(opener: Opener) -> None:
    here, there = opener(), opener()
    there.add_runs([])
    cursor = quiet(here, CHANGES)
    if isinstance(here, SQLAlchemyJobStore) and here._open().kind == "sqlite":
        here._open().waker.look_every = None  # only a message counts here, not a look of the sleeper's own
    for change, jobs in ((add_run, False), (add_job, True), (add_run, False)):
        change(there)
        heard = here.wait(cursor, PATIENCE_SECONDS)
        assert heard != cursor
        assert bool((heard - cursor) % RUNS_STEP) is jobs
        cursor = quiet(here, CHANGES)


@on("sqlite")
def test_a_job_behind_more_new_runs_than_a_socket_holds_is_told_of(opener: Opener) -> None:
    here, elsewhere = opener(), opener()
    add_run(elsewhere)
    cursor = quiet(here, CHANGES)
    for _ in range(600):  # nobody reads meanwhile; Linux holds 10 or, on newer systems, 512
        add_run(elsewhere)
    add_job(elsewhere, due_in=-1)
    heard = here.wait(cursor, PATIENCE_SECONDS)
    assert (heard - cursor) % RUNS_STEP != 0


@on("sqlite")
def test_a_change_that_no_socket_tells_of_is_seen_while_others_tell_of_runs_all_the_time(opener: Opener) -> None:
    here, elsewhere, mute = opener(), opener(), opener()
    add_run(elsewhere)
    mute._open().waker.tell = lambda step: None
    cursor = heard = quiet(here, CHANGES)
    add_job(mute, due_in=-1)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (heard - cursor) % RUNS_STEP == 0:
        assert time.monotonic() < deadline
        add_run(elsewhere)
        heard = here.wait(heard, 1)


@on("sqlite", "postgresql", "mariadb", "redis")
def test_an_end_in_another_process_wakes_a_waiter(opener: Opener) -> None:
    ours, theirs = opener(), opener()
    run = start(theirs)
    ours.beat()
    cursor = quiet(ours)
    end(theirs, run)
    assert ours.wait(cursor, PATIENCE_SECONDS, ENDS) != cursor


@on("postgresql", "mariadb")
def test_nobody_is_told_while_nobody_waits(opener: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = opener(), opener()
    first, second, third = (start(theirs) for _ in range(3))
    said = count_words(theirs, monkeypatch)
    end(theirs, first)
    assert said == []
    ours.beat()
    ours.wait(0, 0.1, ENDS)
    end(theirs, second)
    assert said == ["end"]
    ours.shutdown()  # a waiter that died would not say anything, either
    theirs.shift_clock(11)
    end(theirs, third)
    assert said == ["end"]


@on("sqlite")
def test_the_socket_of_a_dead_waiter_is_swept_away(
    opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opener()
    run = start(store)
    folder = tmp_path / "jobs.db-wake"
    folder.mkdir(mode=0o700)
    address = folder / f"{store._open().ends._prefix}1.dead"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead, monkeypatch.context() as here:
        here.chdir(folder)  # the whole path may be too long for a socket
        dead.bind(address.name)
    end(store, run)
    deadline = time.monotonic() + 30
    while address.exists():  # a message may be held back for a moment
        assert time.monotonic() < deadline
        time.sleep(0.01)


@on("sqlite", "postgresql", "redis")
def test_who_stops_to_listen_is_no_longer_told(opener: Opener, tmp_path: Path) -> None:
    store = opener()
    store.beat()
    cursor = quiet(store)
    store.wait(cursor, 0, ENDS)
    if isinstance(store, RedisJobStore):
        assert store._ends._sleepers == []
    elif store._open().kind == "sqlite":
        assert list((tmp_path / "jobs.db-wake").iterdir()) == []
    else:
        assert store._open().ends._connection is None


def cut(store: Any) -> None:
    """Have the server end the connections that listen for ends."""
    if isinstance(store, RedisJobStore):
        assert store.redis.client_kill_filter(_type="pubsub")
        return
    engine = create_engine(store._url)
    listening = f'%LISTEN "{store._open().ends.channel}"%'
    ended = text("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE :query")
    with engine.connect() as connection:
        assert connection.execute(ended, {"query": listening}).scalar()
    engine.dispose()


@on("postgresql", "redis")
def test_a_waiter_whose_connection_is_cut_listens_again(opener: Opener) -> None:
    ours, theirs = opener(), opener()
    runs = [start(theirs) for _ in range(2)]
    with ThreadPoolExecutor(1) as threads:
        waiters = [Waiter([run.id], PATIENCE_SECONDS) for run in runs]
        for waiter, run in zip(waiters, runs, strict=True):
            waiting = threads.submit(hub.wait, lambda: ours, waiter)
            while not (hub.hub_of(ours)._seats and is_listening(ours)):
                time.sleep(0.001)
            cut(ours)
            end(theirs, run)
            waiting.result(PATIENCE_SECONDS)
    assert [waiter.ended()[0].id for waiter in waiters] == [run.id for run in runs]
    cursor = quiet(ours)
    end(theirs, start(theirs))
    assert ours.wait(cursor, PATIENCE_SECONDS, ENDS) != cursor


def is_listening(store: Any) -> bool:
    if isinstance(store, RedisJobStore):
        return any(each["sub"] != "0" for each in store.redis.client_list(_type="pubsub"))
    return store._open().ends._connection is not None


@on("sqlite", "postgresql", "redis")
def test_a_forked_child_waits_with_a_listener_of_its_own(opener: Opener) -> None:
    store = opener()
    runs = [start(store) for _ in range(2)]
    with ThreadPoolExecutor(1) as threads:
        waiter = Waiter([runs[0].id], PATIENCE_SECONDS)
        waiting = threads.submit(hub.wait, lambda: store, waiter)
        while not hub.hub_of(store).looks:
            time.sleep(0.001)
        pid = os.fork()
        if pid == 0:
            try:
                hub.wait(lambda: store, Waiter([runs[1].id], PATIENCE_SECONDS))
                os._exit(0)
            finally:
                os._exit(1)
        end(store, *runs)
        assert os.waitpid(pid, 0)[1] == 0
        waiting.result(PATIENCE_SECONDS)
    assert waiter.ended()[0].id == runs[0].id
