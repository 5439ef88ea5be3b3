"""The connections that a store keeps beside its pool: who gets them, and when they go back."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import event, make_url

from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore, connections
from mainspring.testing.conformance.helpers import add_run, claim, make_run, new_token
from tests.servers import MariaDB, PostgreSQL


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> PostgreSQL | MariaDB:
    found: PostgreSQL | MariaDB = request.getfixturevalue(f"{request.param}_server")
    return found


def _store(url: str, **options: Any) -> SQLAlchemyJobStore:
    table = f"k{new_token().replace('-', '')}{os.getpid()}_jobs"
    return SQLAlchemyJobStore(url, tablename=table, engine_options=options)


@pytest.fixture
def store(server: PostgreSQL | MariaDB) -> Iterator[SQLAlchemyJobStore]:
    store = _store(server.url)
    yield store
    store.shutdown()


def _pool(store: SQLAlchemyJobStore) -> Any:
    return store._open().connections.engine.pool  # type: ignore[attr-defined]


def _checkouts(store: SQLAlchemyJobStore) -> list[Any]:
    """Note from now on each connection that is taken from the pool."""
    seen: list[Any] = []
    event.listen(_pool(store), "checkout", lambda connection, record, proxy: seen.append(connection))
    return seen


def test_calls_in_a_row_take_a_connection_from_the_pool_once(
    store: SQLAlchemyJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "IDLE_SECONDS", 600.0)
    monkeypatch.setattr(connections, "KEPT_SECONDS", 600.0)
    # Otherwise a thread needs a connection at the same time.
    monkeypatch.setattr(store._open().waker, "tell", lambda step: None)
    add_run(store)
    seen = _checkouts(store)
    for _ in range(20):
        store.find_runs(RunQuery(), limit=1)
        add_run(store)
    assert len(claim(store)) == 21
    assert len(seen) <= 1


@pytest.mark.parametrize("name", ["IDLE_SECONDS", "KEPT_SECONDS"])
def test_a_connection_that_rested_or_was_kept_for_long_goes_through_the_pool(
    store: SQLAlchemyJobStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    store.find_runs(RunQuery())
    seen = _checkouts(store)
    monkeypatch.setattr(connections, name, 0.0)
    for _ in range(3):
        store.find_runs(RunQuery())
    assert len(seen) >= 2


def test_a_pool_of_one_connection_serves_threads_and_a_listener(server: PostgreSQL | MariaDB) -> None:
    store = _store(server.url, pool_size=1, max_overflow=0, pool_timeout=60)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(10):
                add_run(store)
        except BaseException as error:
            errors.append(error)

    add_run(store)
    store.wait(0, 0)  # on PostgreSQL it listens on a connection of its own
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors
    assert len(claim(store)) == 41
    store.shutdown()


def test_kept_connections_that_the_server_has_closed_are_replaced(postgresql_server: PostgreSQL) -> None:
    store = _store(postgresql_server.url, connect_args={"application_name": f"kept{os.getpid()}"})
    add_run(store)
    for _ in range(3):
        assert _sessions(postgresql_server, "pg_terminate_backend(pid, 10000)") >= 1
        run = make_run(store)
        assert store.add_runs([run]) == [run.id]
    assert len(claim(store)) == 4
    store.shutdown()
    assert _sessions(postgresql_server, "true") == 0


def _sessions(server: PostgreSQL, do: str) -> int:
    """Do something with each session of this test; return how many there are."""
    url = make_url(server.url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as connection:
        name = f"kept{os.getpid()}"
        found = connection.execute(f"SELECT {do} FROM pg_stat_activity WHERE application_name = %s", [name])
        return len(found.fetchall())


def test_a_pool_of_the_user_is_given_back_after_each_call(server: PostgreSQL | MariaDB) -> None:
    store = _store(server.url)
    engine = store._open().connections.engine  # type: ignore[attr-defined]
    other = SQLAlchemyJobStore(engine=engine, tablename=f"u{new_token().replace('-', '')}{os.getpid()}_jobs")
    before = engine.pool.checkedout()
    other.find_runs(RunQuery())
    assert engine.pool.checkedout() == before
    other.shutdown()
    store.shutdown()
