"""A program falls silent in the middle of a transaction, as one that is frozen or cut off: others go on without it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mainspring.core.run import Run
from mainspring.core.transitions import recover
from mainspring.errors import StoreUnavailable
from mainspring.jobstores.base import NodeInfo
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.jobstores.sqlalchemy.waking import readable
from mainspring.testing.conformance.helpers import add_run, beat, claim, lapsed, new_token, start
from tests.chaos.proxy import Proxy
from tests.servers import MariaDB, PostgreSQL
from tests.waiting import until

PATIENCE = 90.0


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> PostgreSQL | MariaDB:
    found: PostgreSQL | MariaDB = request.getfixturevalue(f"{request.param}_server")
    return found


@pytest.fixture
def stores(server: PostgreSQL | MariaDB) -> Iterator[tuple[SQLAlchemyJobStore, SQLAlchemyJobStore]]:
    """Return the stores of two programs; the second one's network is cut when it falls silent."""
    table, proxy = f"s{new_token().replace('-', '')}{os.getpid()}_jobs", Proxy(server.port)
    urls = server.url, server.url.replace(f":{server.port}", f":{proxy.port}")
    others, silent = (SQLAlchemyJobStore(url, tablename=table) for url in urls)
    silent.cut_off = proxy.cut  # type: ignore[attr-defined]
    yield others, silent
    proxy.close()
    others.shutdown()
    silent.shutdown()


@contextmanager
def _silent(store: Any, verb: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a store fall silent before it commits what a verb has written."""
    database = store._open()
    reached, go_on, commit = threading.Event(), threading.Event(), database._commit

    def fall_silent(connection: Any) -> None:
        store.cut_off("hole")
        reached.set()
        assert go_on.wait(PATIENCE)
        commit(connection)

    def act() -> None:
        with pytest.raises(StoreUnavailable):
            verb()

    monkeypatch.setattr(database, "_commit", fall_silent)
    thread = threading.Thread(target=act)
    thread.start()
    try:
        assert reached.wait(PATIENCE)
        yield
    finally:
        go_on.set()
        thread.join()


def _node(name: str) -> NodeInfo:
    return NodeInfo(id=name, host="here", pid=1, started_at=0)


def _recovered(store: SQLAlchemyJobStore, run: Run) -> bool:
    """Do what a janitor does: make a run whose lease is over claimable again."""
    return any(store.settle([recover(each, store.beat()) for each in lapsed(store) if each.id == run.id]))


def test_runs_that_a_silent_program_was_renewing_are_recovered(
    stores: tuple[SQLAlchemyJobStore, SQLAlchemyJobStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    others, silent = stores
    run = start(others)
    with _silent(silent, lambda: silent.extend([beat(run)], 60.0), monkeypatch):
        others.shift_clock(3600)
        assert _recovered(others, run)  # at the first try: it waits for the lock no longer than it may wait
        assert [each.id for each in claim(others)] == [run.id]


def test_a_program_that_falls_silent_in_its_heartbeat_stops_nobody_else_s(
    stores: tuple[SQLAlchemyJobStore, SQLAlchemyJobStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    others, silent = stores
    run = add_run(others)
    with _silent(silent, lambda: silent.beat(_node("silent"), 60.0), monkeypatch):
        # At the first try: a node whose heartbeat fails takes it for an outage, and recovers nothing for a lease.
        others.beat(_node("other"), 60.0)
        assert [each.id for each in claim(others)] == [run.id]


def test_a_program_that_wakes_up_after_its_transaction_was_ended_begins_it_again(
    postgresql_server: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLAlchemyJobStore(postgresql_server.url, tablename=f"s{new_token().replace('-', '')}{os.getpid()}_jobs")
    run = start(store)
    database: Any = store._open()
    commits, commit = [], database._commit

    def sleep_once(connection: Any) -> None:
        commits.append(connection)
        if len(commits) == 1:
            until(lambda: readable([connection.fileno()], 0.0))  # the server takes its leave
        commit(connection)

    monkeypatch.setattr(database, "_commit", sleep_once)
    assert store.cancel([run.id]) == [True]
    assert len(commits) == 2
    store.shutdown()
