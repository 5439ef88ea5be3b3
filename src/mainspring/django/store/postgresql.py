"""PostgreSQL on Django's connections, with psycopg 3."""

from __future__ import annotations

from typing import Any

import psycopg
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.engine import Dialect

from mainspring.django.store.database import AtomicTx, DjangoDatabase
from mainspring.jobstores.sqlalchemy.database import STEP_TIMEOUT_SECONDS, StoreTx
from mainspring.jobstores.sqlalchemy.postgresql.dialect import PostgreSQLDatabase
from mainspring.jobstores.sqlalchemy.postgresql.statements import PostgreSQLTx

__all__ = ["DjangoPostgreSQL"]

_MS = int(STEP_TIMEOUT_SECONDS * 1000)


class AtomicPostgreSQLTx(AtomicTx, PostgreSQLTx):
    """PostgreSQL statements inside the caller's transaction."""


class DjangoPostgreSQL(DjangoDatabase, PostgreSQLDatabase):
    """A PostgreSQL database of a Django project."""

    @staticmethod
    def make_dialect() -> Dialect:
        return PGDialect_psycopg(dbapi=psycopg)  # type: ignore[no-untyped-call]

    def _tx(self, connection: Any) -> StoreTx:
        return PostgreSQLTx(self, _cursor(connection))

    def _atomic(self, connection: Any) -> AtomicTx:
        return AtomicPostgreSQLTx(self, _cursor(connection))

    def _prepare_session(self, connection: Any) -> None:
        connection.execute(
            f"SET statement_timeout = {_MS}; SET lock_timeout = {_MS};"
            " SET plan_cache_mode = force_generic_plan; SET jit = off",
            prepare=False,
        )
        connection.prepare_threshold = 5


def _cursor(connection: Any) -> Any:
    """Return a plain cursor: Django's cursors bind on the client, which does not support binary parameters."""
    cursor = psycopg.Cursor(connection)
    cursor.format = psycopg.pq.Format.BINARY
    return cursor
