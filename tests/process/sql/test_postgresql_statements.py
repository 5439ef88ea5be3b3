"""The statement of a single enqueue goes to PostgreSQL without a cursor, with any text and of any size."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psycopg
import pytest

from mainspring.core.run import Call, Run
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.jobstores.sqlalchemy.postgresql.connection import TimedConnection
from mainspring.testing.conformance.helpers import add_run, claim, current, make_run, new_id
from tests.servers import PostgreSQL


@pytest.fixture
def store(postgresql_server: PostgreSQL) -> Iterator[SQLAlchemyJobStore]:
    store = SQLAlchemyJobStore(postgresql_server.url, tablename=f"s{new_id()}_jobs")
    yield store
    store.shutdown()


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the statements that were executed without a cursor."""
    sizes: list[int] = []
    change = TimedConnection.change

    def note(self: TimedConnection, statement: str, params: list[bytes | None], formats: list[int]) -> int:
        sizes.append(sum(len(param or b"") for param in params))
        return change(self, statement, params, formats)

    monkeypatch.setattr(TimedConnection, "change", note)
    return sizes


def test_a_call_that_fills_the_socket_is_stored_whole(store: SQLAlchemyJobStore, changed: list[int]) -> None:
    text = os.urandom(400_000).hex()
    run = add_run(store, call=Call("os.path:join", (text,), {}, "join"))
    assert current(store, run).call.args == (text,)
    assert changed[-1] > 300_000


def test_a_known_id_is_not_stored_again(store: SQLAlchemyJobStore, changed: list[int]) -> None:
    run = add_run(store, group="größer")
    assert store.add_runs([make_run(store, run.id, group="other")]) == [run.id]
    assert current(store, run).group == "größer"
    assert len(changed) == 2


def test_a_text_that_postgresql_cannot_keep_is_an_error_and_is_not_cut(store: SQLAlchemyJobStore) -> None:
    run = make_run(store, group="a\0b")
    with pytest.raises(ValueError, match="cannot keep a value"):
        store.add_runs([run])
    assert store.get_runs([run.id]) == [None]
    assert [each.id for each in claim(store)] == []
    add_run(store)  # the connection is as good as before


def test_a_statement_that_fails_is_told_and_the_next_one_goes_on(store: SQLAlchemyJobStore) -> None:
    run = make_run(store, priority=2**40)
    with pytest.raises(ValueError, match="out of range"):
        store.add_runs([run])
    assert [each.id for each in [add_run(store)]] == [each.id for each in claim(store)]


def test_a_database_with_another_encoding_goes_by_the_cursor(postgresql_server: PostgreSQL, changed: list[int]) -> None:
    plain = postgresql_server.url.replace("+psycopg", "")
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1'")
    try:
        store = SQLAlchemyJobStore(f"{postgresql_server.url.rpartition('/')[0]}/latin")
        run: Run = add_run(store, group="größer")
        assert current(store, run).group == "größer"
        assert changed == []
        store.shutdown()
    finally:
        with psycopg.connect(plain, autocommit=True) as connection:
            connection.execute("DROP DATABASE latin WITH (FORCE)")
