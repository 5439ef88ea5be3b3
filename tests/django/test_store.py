"""The store inside and outside of transactions of Django's: each fault that was found once, on each database."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar

import pytest
from django.apps import apps
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections, transaction
from django.db.transaction import TransactionManagementError
from sqlalchemy import create_engine, text

from mainspring import Mainspring
from mainspring.django.store import DjangoStore
from mainspring.django.store.databases import make_database
from mainspring.errors import (
    ConfigurationError,
    ConflictingIdError,
    JobLookupError,
    RunCancelled,
    RunNotFound,
    StoreUnavailable,
    TransactionOpen,
)
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.jobstores.sqlalchemy.mariadb import MariaDBTx
from mainspring.jobstores.sqlalchemy.meta import SQL_SCHEMA
from mainspring.testing.conformance.helpers import add_run, claim, make_run
from tests.app.forking.interrupting import interrupted_everywhere
from tests.django.conftest import URLS, emptied

DATABASES = ["on_sqlite", "on_postgresql", "on_mariadb"]


@pytest.fixture(params=DATABASES)
def alias(request: pytest.FixtureRequest) -> str:
    alias: str = request.getfixturevalue(request.param)
    emptied(alias)
    return alias


@pytest.fixture
def app(alias: str) -> Iterator[Mainspring]:
    with Mainspring(f"django://{alias}", secret_key="a key for this test") as app:
        app.task(double)
        app.now()  # the store is open
        yield app


def double(number: int = 1) -> int:
    return 2 * number


class Undo(Exception):
    pass


def rolled_back(alias: str) -> Any:
    """Return a block whose transaction is rolled back."""
    return _RolledBack(alias)


class _RolledBack:
    def __init__(self, alias: str) -> None:
        self._atomic = transaction.atomic(using=alias)

    def __enter__(self) -> None:
        self._atomic.__enter__()

    def __exit__(self, *error: object) -> None:
        with suppress(Undo):
            self._atomic.__exit__(Undo, Undo(), None)


def test_a_run_is_there_if_and_only_if_the_transaction_commits(app: Mainspring, alias: str) -> None:
    with transaction.atomic(using=alias):
        kept = app.enqueue(double, 1)
    with rolled_back(alias):
        undone = app.enqueue(double, 2)
        assert undone.status() == "pending"
    assert kept.status() == "pending"
    with pytest.raises(RunNotFound):
        undone.status()


def test_nobody_else_sees_a_run_before_the_commit(app: Mainspring, alias: str) -> None:
    other = SQLAlchemyJobStore(URLS[alias], codec=app.codec)  # the plain SQL store, as another process opens it
    other.beat()
    with transaction.atomic(using=alias):
        handle = app.enqueue(double, 1)
        assert other.get_runs([handle.id]) == [None]
    [found] = other.get_runs([handle.id])
    assert found is not None
    assert found.args == (1,)
    assert [run.id for run in claim(other)] == [handle.id]
    assert handle.status() == "running"
    other.shutdown()


def test_a_savepoint_that_is_rolled_back_takes_its_runs_along(app: Mainspring, alias: str) -> None:
    with transaction.atomic(using=alias):
        first = app.enqueue(double, 1)
        with rolled_back(alias):
            undone = app.enqueue(double, 2)
        last = app.enqueue(double, 3)
    assert {run.id for run in app.find()} == {first.id, last.id}
    assert undone.id not in {first.id, last.id}


def test_thousands_of_calls_are_part_of_the_transaction(app: Mainspring, alias: str) -> None:
    task = app.as_task(double)
    with rolled_back(alias):
        app.enqueue_many(task.call(number) for number in range(1_500))
        assert app.count() == 1_500
    assert app.count() == 0


def test_a_job_whose_id_is_taken_leaves_the_transaction_usable(app: Mainspring, alias: str) -> None:
    app.add_job(double, "interval", minutes=5, id="taken")
    with transaction.atomic(using=alias):
        with pytest.raises(ConflictingIdError):
            app.add_job(double, "interval", minutes=5, id="taken")
        app.add_job(double, "interval", minutes=5, id="new")
    assert {job.id for job in app.jobs()} == {"taken", "new"}


def test_a_job_that_is_added_in_a_failing_transaction_is_gone(app: Mainspring, alias: str) -> None:
    with rolled_back(alias):
        app.add_job(double, "interval", minutes=5, id="undone")
        assert app.get_job("undone").id == "undone"
    with pytest.raises(JobLookupError):
        app.get_job("undone")


def test_unique_keys_hold_inside_a_transaction(app: Mainspring, alias: str) -> None:
    task = app.as_task(double).options(unique="only")
    with transaction.atomic(using=alias):
        first, second = task.enqueue(1), task.enqueue(2)
    assert first.id == second.id
    assert task.enqueue(3).id == first.id


def test_waiting_for_a_run_of_the_open_transaction_is_refused_at_once(app: Mainspring, alias: str) -> None:
    earlier = app.enqueue(double, 1)
    with transaction.atomic(using=alias):
        handle = app.enqueue(double, 2)
        with pytest.raises(TransactionOpen, match="commit first"):
            handle.result()
        with pytest.raises(TimeoutError):  # a worker sees this one, and may execute it
            earlier.result(timeout=0)
    with pytest.raises(TimeoutError):
        handle.result(timeout=0)
    with rolled_back(alias):
        app.enqueue(double, 3)
    with transaction.atomic(using=alias), pytest.raises(TimeoutError):
        handle.result(timeout=0)


def test_waiting_while_a_transaction_holds_the_whole_file_is_refused_at_once(on_sqlite: str) -> None:
    emptied(on_sqlite)
    with Mainspring(f"django://{on_sqlite}") as app:
        handle = app.task(double).enqueue(1)
        with transaction.atomic(using=on_sqlite):
            with pytest.raises(TransactionOpen, match="keeps all others from writing to the SQLite file"):
                handle.result()
            with pytest.raises(TransactionOpen):
                handle.wait(timeout=600)
            assert app.cancel(handle)
            assert handle.wait().status == "cancelled"


def test_a_wait_inside_a_transaction_sees_what_the_transaction_has_written(app: Mainspring, alias: str) -> None:
    cancelled, failed = app.enqueue(double, 1), app.enqueue(double, 2)
    app.cancel(failed)
    with transaction.atomic(using=alias):
        app.cancel(cancelled)
        with pytest.raises(RunCancelled):
            cancelled.result()
        failed.retry()
        with pytest.raises(TransactionOpen, match="commit first"):  # not the old end, which all others still see
            failed.result()


def test_a_column_called_name_in_the_runs_stops_no_claim(app: Mainspring, alias: str) -> None:
    connection = connections[alias]
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE mainspring_runs ADD COLUMN name TEXT NULL")
    try:
        run = add_run(app.store)
        assert [one.id for one in claim(app.store)] == [run.id]
        assert [one.id for one in claim(app.store, "default", "other")] == []
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE mainspring_runs DROP COLUMN name")


def test_many_enqueues_in_a_transaction_wake_the_workers_once(app: Mainspring, alias: str) -> None:
    with transaction.atomic(using=alias):
        for number in range(5):
            app.enqueue(double, number)
            transaction.on_commit(lambda: None, using=alias)  # the project's own
        called = [entry[1].__name__ for entry in connections[alias].run_on_commit]
        cursor = app.store.wait(0, 0)
    assert called.count("committed") == 1
    assert app.store.wait(cursor, 30) != cursor


def test_the_models_give_no_warnings(alias: str) -> None:
    models = apps.get_app_config("mainspring").get_models()
    assert [message for model in models for message in model.check(databases=[alias])] == []


def test_a_broken_transaction_is_refused_as_the_orm_refuses_it(app: Mainspring, alias: str) -> None:
    with rolled_back(alias):
        transaction.set_rollback(True, using=alias)
        with pytest.raises(TransactionManagementError):
            app.enqueue(double, 1)


def test_a_plain_enqueue_in_a_coroutine_is_refused_as_the_orm_refuses_it(app: Mainspring) -> None:
    async def enqueue() -> None:
        app.enqueue(double, 1)

    with pytest.raises(SynchronousOnlyOperation):
        asyncio.run(enqueue())


def test_tables_that_nobody_made_are_a_clear_error(alias: str) -> None:
    store = DjangoStore(f"django://{alias}", "absent_jobs")
    with pytest.raises(ConfigurationError, match=r"has no table 'absent_meta'; run: manage\.py migrate"):
        store.beat()
    with transaction.atomic(using=alias):
        with pytest.raises(ConfigurationError, match=r"manage\.py migrate"):
            store.beat()
        assert connections[alias].introspection.table_names()  # the transaction goes on


def test_tables_of_another_schema_are_neither_claimed_from_nor_fired(alias: str) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute(f"UPDATE mainspring_meta SET value = {SQL_SCHEMA + 1} WHERE value = {SQL_SCHEMA}")
    store = DjangoStore(f"django://{alias}")
    try:
        assert store.beat() > 0
        with pytest.raises(StoreUnavailable, match=f"have schema {SQL_SCHEMA + 1}"):
            claim(store)
        with pytest.raises(StoreUnavailable, match=f"have schema {SQL_SCHEMA + 1}"):
            store.due(10, 0)
    finally:
        store.shutdown()
        with connections[alias].cursor() as cursor:
            cursor.execute(f"UPDATE mainspring_meta SET value = {SQL_SCHEMA} WHERE value = {SQL_SCHEMA + 1}")


def test_an_alias_that_is_not_there_is_named_with_a_near_one() -> None:
    with pytest.raises(ConfigurationError, match=r"no database 'defautl' in DATABASES.*'default'"):
        make_database("defautl", "mainspring_jobs")


def test_bytes_are_marked_for_drivers_that_send_them_as_text() -> None:
    sent: list[str] = []

    class Cursor:
        rowcount = 1

        def execute(self, statement: str, params: object) -> None:
            sent.append(statement)

    class Database:
        names: ClassVar = {"runs": "runs"}
        texts: ClassVar[dict[str, str]] = {}
        packet = 1_000_000

    tx = MariaDBTx(Database(), Cursor())  # type: ignore[arg-type]
    tx.update("runs", ("state",), [("a", b"\xff"), ("b", b"\xfe")])
    tx.insert("runs", ("id", "state"), [("c", b"\xfd")])
    assert "SELECT %s AS id, _binary %s AS state UNION ALL SELECT %s, _binary %s" in sent[0]
    assert sent[1].endswith("VALUES (%s, _binary %s)")


def test_the_sql_store_knows_its_errors_where_pymysql_stands_in_for_mysqlclient() -> None:
    program = """
import pymysql
pymysql.install_as_MySQLdb()
import MySQLdb.converters  # as Django does; this replaces pymysql.err by a second copy
from mainspring.jobstores.sqlalchemy.mariadb import MariaDBDatabase
assert issubclass(pymysql.err.MySQLError, Exception) and pymysql.err.MySQLError not in pymysql.OperationalError.__mro__
assert issubclass(pymysql.OperationalError, MariaDBDatabase._driver_error.fget(None))
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_django_goes_on_after_any_step_of_ours_that_was_interrupted(app: Mainspring, alias: str) -> None:
    """Its connection is in no transaction that somebody would undo: what it writes next is there."""
    store: Any = app.store

    def undone(tx: Any) -> None:
        tx.run("UPDATE {meta} SET value = value WHERE name = 'made'")
        raise Undo

    def undo() -> None:
        with pytest.raises(Undo):
            store._write(undone)

    engine = create_engine(URLS[alias])
    for work in (lambda: store.set_gate("some", 3), undo):
        for place in interrupted_everywhere(work, ("mainspring.jobstores.sqlalchemy.server",)):
            with connections[alias].cursor() as cursor:
                cursor.execute("UPDATE mainspring_meta SET value = value + 1 WHERE name = 'clock'")
                cursor.execute("SELECT value FROM mainspring_meta WHERE name = 'clock'")
                (written,) = cursor.fetchone()
            with engine.connect() as connection:
                found = connection.scalar(text("SELECT value FROM mainspring_meta WHERE name = 'clock'"))
            assert found == written, f"Django's write is lost after an interrupt at {place}"
    engine.dispose()


@pytest.mark.parametrize("alias", ["on_postgresql", "on_mariadb"], indirect=True)
def test_an_idle_connection_that_the_server_has_closed_is_replaced_before_a_write(app: Mainspring, alias: str) -> None:
    """A write that commits by itself could not be repeated: nobody knows whether the closed connection took it."""
    run = make_run(app.store)
    on_postgresql = connections[alias].vendor == "postgresql"
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()" if on_postgresql else "SELECT CONNECTION_ID()")
        (session,) = cursor.fetchone()
    engine = create_engine(URLS[alias])
    with engine.connect() as connection:
        connection.execute(
            text(f"SELECT pg_terminate_backend({session}, 10000)" if on_postgresql else f"KILL {session}")
        )
    engine.dispose()
    assert app.store.add_runs([run]) == [run.id]
