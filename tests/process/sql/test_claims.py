"""Claims over many queues, and how many questions a claim asks: what a SQL store promises besides the contract."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymysql.cursors import Cursor
from sqlalchemy import make_url

from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.jobstores.sqlalchemy.postgresql.statements import PostgreSQLTx
from mainspring.testing.conformance.helpers import LEASE, NODE, claim, look, make_run, new_token, settle, succeed
from tests.servers import MariaDB, PostgreSQL

MANY = [f"q{number:03}" for number in range(300)]


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SQLAlchemyJobStore]:
    if request.param == "sqlite":
        url, table = f"sqlite:///{tmp_path}/jobs.db", "mainspring_jobs"
    else:
        server: PostgreSQL | MariaDB = request.getfixturevalue(f"{request.param}_server")
        url, table = server.url, _table()
    store = SQLAlchemyJobStore(url, tablename=table)
    yield store
    store.shutdown()


@pytest.fixture
def postgresql(postgresql_server: PostgreSQL) -> Iterator[SQLAlchemyJobStore]:
    store = SQLAlchemyJobStore(postgresql_server.url, tablename=_table())
    yield store
    store.shutdown()


def _table() -> str:
    return f"c{new_token().replace('-', '')}{os.getpid()}_jobs"


class Unsearchable(tuple[str, ...]):
    """The names of a want. Whoever looks for one of them from its beginning, takes time that grows with the square."""

    def __contains__(self, name: object) -> bool:
        raise AssertionError("a claim searched the names of a want one by one")


def _noted(monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> list[str]:
    """Note every statement from now on."""
    said: list[str] = []
    original: Callable[..., Any] = getattr(kind, name)

    def note(self: Any, statement: str, *rest: Any, **options: Any) -> Any:
        said.append(statement)
        return original(self, statement, *rest, **options)

    monkeypatch.setattr(kind, name, note)
    return said


# -- many queues -----------------------------------------------------------------------------------------------------


def test_the_oldest_of_many_queues_go_first(store: SQLAlchemyJobStore) -> None:
    first = [make_run(store, due_in=-100 + number, queue="q007") for number in range(12)]
    others = [make_run(store, due_in=-50, queue=name) for name in MANY[10:40]]
    urgent = make_run(store, due_in=-1, queue="q011", priority=3)
    store.add_runs([*others, *reversed(first), urgent])
    found = look(store, *MANY[:40], limit=11)
    assert [run.id for run in found.runs] == [urgent.id, *(run.id for run in first[:10])]
    assert found.next_at is not None
    assert found.next_at <= found.now
    left = {run.id for run in claim(store, *MANY[:40])}
    assert left == {run.id for run in [*first[10:], *others]}


def test_no_claim_searches_the_names_of_a_want(store: SQLAlchemyJobStore) -> None:
    runs = [make_run(store, queue=name) for name in MANY]
    store.add_runs(runs)
    wants = [(Unsearchable(MANY), 200), (Unsearchable(f"{name}:async" for name in MANY), 50)]
    first = store.claim(wants, node=NODE, token=new_token(), lease=LEASE)
    assert len(first.runs) == 200
    store.set_gate("queue:q299", 5)  # with a limit, a claim judges run by run
    rest = store.claim(wants, node=NODE, token=new_token(), lease=LEASE)
    assert {run.id for run in [*first.runs, *rest.runs]} == {run.id for run in runs}


def test_mariadb_asks_for_many_queues_together(mariadb_server: MariaDB, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SQLAlchemyJobStore(mariadb_server.url, tablename=_table())
    store.add_runs([make_run(store, queue=name) for name in MANY])
    said = _noted(monkeypatch, Cursor, "execute")
    assert len(claim(store, *MANY)) == len(MANY)
    assert len(said) < 40
    store.shutdown()


def test_runs_of_many_queues_that_another_transaction_has_are_skipped(mariadb_server: MariaDB) -> None:
    store = SQLAlchemyJobStore(mariadb_server.url, tablename=_table())
    runs = [make_run(store, f"run-{number}", due_in=-100 + number, queue=MANY[number % 8]) for number in range(24)]
    store.add_runs(runs)
    holder = store._open().connections.separate()
    with holder.cursor() as cursor:
        cursor.execute("START TRANSACTION")
        cursor.execute(f"SELECT id FROM {store._open().names['runs']} WHERE id IN ('run-0', 'run-3') FOR UPDATE")
        found = [run.id for run in claim(store, *MANY[:8], limit=8)]
        assert found == [f"run-{number}" for number in (1, 2, 4, 5, 6, 7, 8, 9)]
    holder.close()
    store.shutdown()


# -- few questions ---------------------------------------------------------------------------------------------------


def test_a_claim_of_postgresql_asks_once_for_the_most_urgent_runs(
    postgresql: SQLAlchemyJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = make_run(postgresql, due_in=500)
    postgresql.add_runs([late, *(make_run(postgresql) for _ in range(5))])
    lanes = ("default", "default:async", "default:process")
    wants = [((lane,), limit) for lane, limit in zip(lanes, (3, 9, 2), strict=True)]
    said = _noted(monkeypatch, PostgreSQLTx, "_fetch")
    for number, left in ((3, True), (2, False), (0, False)):
        said.clear()
        found = postgresql.claim(wants, node=NODE, token=new_token(), lease=LEASE)
        assert len(found.runs) == number
        assert found.next_at is not None
        assert (found.next_at <= found.now) is left
        assert left or found.next_at == late.run_at
        assert len(said) == 1


def test_a_claim_of_postgresql_asks_again_for_the_runs_of_other_executors(
    postgresql: SQLAlchemyJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [make_run(postgresql, executor=executor) for executor in (None, "loop") for _ in range(3)]
    urgent = make_run(postgresql, priority=5)
    postgresql.add_runs([*runs, urgent])
    said = _noted(monkeypatch, PostgreSQLTx, "_fetch")
    found = postgresql.claim([(("default",), 3), (("default:async",), 9)], node=NODE, token=new_token(), lease=LEASE)
    assert [run.id for run in found.runs] == [urgent.id, *(run.id for run in [*runs[:2], *runs[3:]])]
    assert len(said) == 3  # the urgent one while it looked, then the rest of the two lanes
    assert found.next_at is not None
    assert found.next_at <= found.now


def test_the_runs_of_a_few_queues_come_in_one_statement_the_oldest_first(
    postgresql: SQLAlchemyJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [make_run(postgresql, due_in=-50 + number, queue=MANY[number % 4]) for number in range(12)]
    postgresql.add_runs(runs)
    said = _noted(monkeypatch, PostgreSQLTx, "_fetch")
    found = look(postgresql, *MANY[:8], limit=7)
    assert [run.id for run in found.runs] == [run.id for run in runs[:7]]
    assert len(said) == 1
    assert found.next_at == runs[7].run_at


def test_a_full_claim_that_leaves_nothing_says_so(postgresql: SQLAlchemyJobStore) -> None:
    postgresql.add_runs([make_run(postgresql) for _ in range(4)])
    assert look(postgresql, limit=2).next_at is not None
    found = look(postgresql, limit=2)
    assert (len(found.runs), found.next_at) == (2, None)


def test_a_run_is_written_to_few_indexes(postgresql: SQLAlchemyJobStore, postgresql_server: PostgreSQL) -> None:
    runs = [make_run(postgresql) for _ in range(50)]
    postgresql.add_runs(runs)
    prefix = postgresql._open().names["runs"]
    assert _indexes(postgresql_server, prefix) == {f"{prefix}_pkey", f"{prefix}_claim", f"{prefix}_newest"}
    for run in claim(postgresql):
        settle(postgresql, succeed(postgresql, run))
    assert _indexes(postgresql_server, prefix) == {f"{prefix}_pkey", f"{prefix}_ended", f"{prefix}_newest"}


def _indexes(server: PostgreSQL, table: str) -> set[str]:
    """Return the indexes of a table that have entries."""
    url = make_url(server.url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"VACUUM (ANALYZE, INDEX_CLEANUP ON) {table}")
        found = connection.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'i' AND reltuples > 0"
            f" AND oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = '{table}'::regclass)"
        )
        return {name for (name,) in found}
