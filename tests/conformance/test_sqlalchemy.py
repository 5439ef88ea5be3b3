"""The SQL store on SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from mainspring.jobstores.base import JobStore
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.testing.conformance import StoreConformance
from tests.servers import MariaDB, PostgreSQL

TABLES = ("jobs", "runs", "broken", "gone", "queues", "nodes", "totals", "acts", "tallies", "edges", "limits")


@pytest.fixture(scope="module")
def postgresql(postgresql_server: PostgreSQL) -> Iterator[Engine]:
    yield from _engine(postgresql_server.url)


@pytest.fixture(scope="module")
def mariadb(mariadb_server: MariaDB) -> Iterator[Engine]:
    yield from _engine(mariadb_server.url)


class TestSQLite(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[JobStore]:
        store = SQLAlchemyJobStore(f"sqlite:///{tmp_path}/jobs.db")
        yield store
        store.shutdown()


class TestPostgreSQL(StoreConformance):
    @pytest.fixture
    def store(self, postgresql: Engine) -> Iterator[JobStore]:
        yield from _emptied(postgresql)


class TestMariaDB(StoreConformance):
    @pytest.fixture
    def store(self, mariadb: Engine) -> Iterator[JobStore]:
        yield from _emptied(mariadb)


def _engine(url: str) -> Iterator[Engine]:
    engine = create_engine(url, pool_size=10)
    yield engine
    engine.dispose()


def _emptied(engine: Engine) -> Iterator[JobStore]:
    """Give a store with nothing in it; the tables are made once, since making them takes longer than a test."""
    store = SQLAlchemyJobStore(engine=engine)
    store.beat()
    with engine.begin() as connection:
        for table in TABLES:
            connection.execute(text(f"DELETE FROM mainspring_{table}"))
    yield store
    store.shutdown()
    with engine.begin() as connection:  # else the next test, minutes later, sees a clock that has jumped
        connection.execute(text("UPDATE mainspring_meta SET value = 0 WHERE name = 'clock'"))
