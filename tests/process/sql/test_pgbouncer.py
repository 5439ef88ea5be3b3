"""The SQL store through PgBouncer in transaction mode, with the settings that docs/stores/sql.md tells.

Skipped where PgBouncer is not installed, also where every server has to be there: installing it takes too long.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, text

from mainspring import Mainspring
from mainspring.errors import StoreUnavailable
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.testing.conformance import (
    ClaimConformance,
    ConcurrencyConformance,
    FiringConformance,
    LeaseConformance,
    SettleConformance,
)
from mainspring.testing.conformance.helpers import add_run, claim, make_run
from tests.servers import HOST, MissingServer, PostgreSQL, Server

ROLE = "pooled"
SETTINGS = {
    "statement_timeout": "4500ms",
    "lock_timeout": "4500ms",
    "idle_in_transaction_session_timeout": "2s",
    "plan_cache_mode": "force_generic_plan",
}
OPTIONS = {"connect_args": {"prepare_threshold": None}}
TABLES = ("jobs", "runs", "broken", "gone", "queues", "nodes", "totals", "acts", "tallies")


def double(number: int) -> int:
    return 2 * number


class PgBouncer(Server):
    """A pooler before a PostgreSQL server, with fewer connections to it than clients have."""

    name = "PgBouncer"
    program = "pgbouncer"
    package = "pgbouncer"
    user = "postgres"  # it refuses to run as root

    def __init__(self, server: PostgreSQL) -> None:
        super().__init__()
        self._server = server

    @property
    def url(self) -> str:
        """The address of the database `postgres` behind it."""
        return f"postgresql://{ROLE}@{HOST}:{self.port}/postgres"

    def _command(self) -> list[str | Path]:
        settings = self.directory / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\npostgres = host={HOST} port={self._server.port} user={ROLE}\n"
            f"[pgbouncer]\nlisten_addr = {HOST}\nlisten_port = {self.port}\nunix_socket_dir =\nauth_type = any\n"
            "pool_mode = transaction\ndefault_pool_size = 3\nignore_startup_parameters = options\n"
        )
        return [self.binary, settings]

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.Error:
            return False
        return True


@pytest.fixture(scope="module")
def pooler(postgresql_server: PostgreSQL) -> Iterator[PgBouncer]:
    engine = create_engine(postgresql_server.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE ROLE {ROLE} LOGIN SUPERUSER"))
        for name, value in SETTINGS.items():
            connection.execute(text(f"ALTER ROLE {ROLE} SET {name} = '{value}'"))
    engine.dispose()
    try:
        with PgBouncer(postgresql_server) as pooler:
            yield pooler
    except MissingServer as missing:
        if os.environ.get("MAINSPRING_STRICT") == "1":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(f"NOT TESTED, a pooler in transaction mode: {missing}")


@pytest.fixture
def store(pooler: PgBouncer) -> Iterator[JobStore]:
    store = SQLAlchemyJobStore(pooler.url, tablename="pooled_jobs", engine_options=OPTIONS)
    store.beat()
    store._write(lambda tx: [tx.run(f"DELETE FROM {{{table}}}") for table in TABLES])
    yield store
    store.shutdown()


class TestPgBouncer(FiringConformance, ClaimConformance, LeaseConformance, SettleConformance, ConcurrencyConformance):
    """Fires, claims, leases and ends, also of many at once, on three connections for all."""


def test_more_calls_than_a_prepared_statement_needs_go_over_changing_connections(store: JobStore) -> None:
    for _ in range(30):
        run = add_run(store)
        assert [each.id for each in claim(store)] == [run.id]


def test_no_message_comes_through_and_what_another_node_added_is_found_by_looking(
    store: JobStore, pooler: PgBouncer
) -> None:
    other = SQLAlchemyJobStore(pooler.url, tablename="pooled_jobs", engine_options=OPTIONS)
    cursor = store.wait(store.wait(0, 0), 0)
    run = add_run(other)
    assert isinstance(store.wait(cursor, 0.5), int)  # it may say nothing, but does not fail
    assert [each.id for each in claim(store)] == [run.id]
    other.shutdown()


def test_a_worker_finds_the_runs_of_other_processes_without_a_message(store: JobStore, pooler: PgBouncer) -> None:
    other = SQLAlchemyJobStore(pooler.url, tablename="pooled_jobs", engine_options=OPTIONS)
    with Mainspring(store) as worker, Mainspring(other) as client:
        for app in (worker, client):
            app.task(name="double")(double)
        worker.start(work=True)
        client.enqueue("double", 1).result(timeout=60)  # the worker is idle from now on
        assert client.enqueue("double", 21).result(timeout=60) == 42


def test_the_settings_of_the_role_are_in_force_behind_the_pooler(store: JobStore) -> None:
    assert not [warning for warning in store.health().warnings if "ALTER ROLE" in warning]


def test_a_pooler_that_is_restarted_is_an_outage_like_another(store: JobStore, pooler: PgBouncer) -> None:
    before = make_run(store)
    pooler.kill()
    with pytest.raises(StoreUnavailable):
        store.add_runs([before])
    pooler.restart()
    deadline = time.monotonic() + 30
    while True:
        with suppress(StoreUnavailable):
            store.beat()
            break
        assert time.monotonic() < deadline
    assert store.add_runs([before]) == [before.id]
