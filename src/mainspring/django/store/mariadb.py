"""MariaDB and MySQL on Django's connections, with mysqlclient, or PyMySQL in its place."""

from __future__ import annotations

from typing import Any

import MySQLdb
from sqlalchemy.dialects.mysql.mysqldb import MySQLDialect_mysqldb
from sqlalchemy.engine import Dialect

from mainspring.django.store.database import AtomicTx, DjangoDatabase
from mainspring.jobstores.sqlalchemy.database import STEP_TIMEOUT_SECONDS
from mainspring.jobstores.sqlalchemy.mariadb import MariaDBDatabase, MariaDBTx

__all__ = ["DjangoMariaDB"]


class AtomicMariaDBTx(AtomicTx, MariaDBTx):
    """MariaDB statements inside the caller's transaction."""


class DjangoMariaDB(DjangoDatabase, MariaDBDatabase):
    """A MariaDB or MySQL database of a Django project."""

    @staticmethod
    def make_dialect() -> Dialect:
        return MySQLDialect_mysqldb(dbapi=MySQLdb)

    @property
    def _driver_error(self) -> type[Exception]:
        return MySQLdb.Error  # type: ignore[no-any-return]

    def _atomic(self, connection: Any) -> AtomicTx:
        return AtomicMariaDBTx(self, connection.cursor())

    def _fileno(self, connection: Any) -> int | None:
        return int(connection.fileno()) if hasattr(connection, "fileno") else super()._fileno(connection)

    def _prepare_session(self, connection: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {int(STEP_TIMEOUT_SECONDS)}")
