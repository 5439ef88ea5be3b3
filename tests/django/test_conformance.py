"""The conformance suite on Django's connections, in autocommit mode and inside one `transaction.atomic()`.

The statements are those of the plain SQL store, so CI runs a part of it; all of it runs with

    MAINSPRING_DJANGO=all python3 run.py test -- tests/django/test_conformance.py
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from mainspring.django.store import DjangoStore
from mainspring.jobstores.base import JobStore
from mainspring.testing import conformance
from mainspring.testing.conformance import ends, helpers, service
from mainspring.testing.conformance.history import tallies
from tests.django.conftest import ClosingThread, ClosingThreads, added_database, emptied
from tests.process.sql.test_pgbouncer import PgBouncer, pooler  # noqa: F401

ALL = os.environ.get("MAINSPRING_DJANGO") == "all"
SUITE: Any = conformance.StoreConformance
ALONE = ("together(", "Thread", "_begin_to_wait(")
"""What a test cannot do inside one transaction: start threads. Each has a connection of its own, which sees nothing of
a transaction that is open elsewhere; on SQLite it could not even write beside it."""


def inside_one_transaction(suite: type) -> type:
    """Leave out the tests that need several connections."""
    left_out = {
        name: None
        for name, test in inspect.getmembers(suite, inspect.isfunction)
        if name.startswith("test_") and any(word in inspect.getsource(test) for word in ALONE)
    }
    return type(suite.__name__, (suite,), left_out)


class _Mix(
    conformance.ClaimConformance,
    conformance.LaneConformance,
    conformance.EndConformance,
    conformance.ConcurrencyConformance,
):
    """The part in which it matters whose connection a statement is sent on."""


class _SQLiteMix(_Mix, conformance.FiringConformance, conformance.SettleConformance):
    """More of it, since SQLite has transactions of its own here."""


PART: Any = SUITE if ALL else _Mix
JOINED: Any = inside_one_transaction(SUITE if ALL else conformance.EdgeConformance)
"""Edges are added and settled by one statement and by several."""


@pytest.fixture(autouse=True)
def _threads_close_their_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (helpers, tallies):
        monkeypatch.setattr(module, "ThreadPoolExecutor", ClosingThreads)
    for module in (ends, service):
        monkeypatch.setattr(module, "Thread", ClosingThread)


def started(alias: str) -> Iterator[JobStore]:
    emptied(alias)
    store = DjangoStore(f"django://{alias}")
    yield store
    store.shutdown()


def joined(alias: str) -> Iterator[JobStore]:
    with transaction.atomic(using=alias):
        yield from started(alias)
        transaction.set_rollback(True, using=alias)


class TestSQLite(SUITE if ALL else _SQLiteMix):  # type: ignore[misc]
    @pytest.fixture
    def store(self, on_sqlite: str) -> Iterator[JobStore]:
        yield from started(on_sqlite)


class TestPostgreSQL(PART):
    @pytest.fixture
    def store(self, on_postgresql: str) -> Iterator[JobStore]:
        yield from started(on_postgresql)


class TestMariaDB(PART):
    @pytest.fixture
    def store(self, on_mariadb: str) -> Iterator[JobStore]:
        yield from started(on_mariadb)


class TestInsideSQLite(JOINED):
    @pytest.fixture
    def store(self, on_sqlite: str) -> Iterator[JobStore]:
        yield from joined(on_sqlite)


class TestInsidePostgreSQL(JOINED):
    @pytest.fixture
    def store(self, on_postgresql: str) -> Iterator[JobStore]:
        yield from joined(on_postgresql)


class TestInsideMariaDB(JOINED):
    @pytest.fixture
    def store(self, on_mariadb: str) -> Iterator[JobStore]:
        yield from joined(on_mariadb)


if ALL:  # starting a pooler takes too long for CI, which tests the plain SQL store behind one

    @pytest.fixture(scope="module")
    def pooled(pooler: PgBouncer) -> Iterator[str]:
        with added_database("pooled", pooler.url, DISABLE_SERVER_SIDE_CURSORS=True) as alias:
            yield alias

    class TestPgBouncer(SUITE):
        @pytest.fixture
        def store(self, pooled: str) -> Iterator[JobStore]:
            yield from started(pooled)

    class TestInsidePgBouncer(JOINED):
        @pytest.fixture
        def store(self, pooled: str) -> Iterator[JobStore]:
            yield from joined(pooled)
