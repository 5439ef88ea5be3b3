"""SQLite on Django's connections: one file with a connection per thread, which the store treats as a server."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from django.db import connections
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import Dialect

from mainspring.django.store.database import AtomicTx, DjangoDatabase
from mainspring.errors import MainspringError, StoreLocked, StoreUnavailable
from mainspring.jobstores.records.rows import JobRow
from mainspring.jobstores.sqlalchemy.database import StoreTx, UnreadableValue
from mainspring.jobstores.sqlalchemy.sqlite.dialect import ALTERED_ERRORS, SQLiteDatabase
from mainspring.jobstores.sqlalchemy.sqlite.errors import explain, is_busy, is_undecodable
from mainspring.jobstores.sqlalchemy.sqlite.host_clock import HostClock
from mainspring.jobstores.sqlalchemy.sqlite.sockets import SocketWaker
from mainspring.jobstores.sqlalchemy.sqlite.transactions import SQLiteTx
from mainspring.jobstores.sqlalchemy.steps.jobs import next_due

__all__ = ["DjangoSQLite"]

T = TypeVar("T")


class OwnSQLiteTx(SQLiteTx):
    """A transaction that the store began; without `begin`, each statement stands alone."""

    begun = False

    def begin(self) -> None:
        self.begun = True
        self.cursor.execute("BEGIN IMMEDIATE")

    def note_ends(self, awaited: Sequence[int | None]) -> None:
        self.ended = self.awaited = True  # the sockets beside the file know the waiters


class AtomicSQLiteTx(AtomicTx, SQLiteTx):
    """SQLite statements inside the caller's transaction."""


class DjangoSQLite(DjangoDatabase):
    """A SQLite database of a Django project: a file, or in memory during tests."""

    kind = "sqlite"
    words = SQLiteDatabase.words

    def __init__(self, alias: str, tablename: str) -> None:
        self.clock = HostClock()
        settings = connections[alias].settings_dict
        name = str(settings["NAME"])
        self.path = None if ":memory:" in name or "mode=memory" in name else os.path.realpath(name)
        self.patience = float(settings["OPTIONS"].get("timeout", 5.0))
        self.waker = SocketWaker(self.path, tablename)
        self.ends = SocketWaker(self.path, f"{tablename}~ends", look_every=None)
        self.waker.data_version = self.ends.data_version = self._data_version
        self._watcher: sqlite3.Connection | None = None
        self.suspect = False
        """Whether an invalid text was found, so that every text must be checked."""
        super().__init__(alias, tablename)
        self.slot = 0

    @staticmethod
    def make_dialect() -> Dialect:
        return SQLiteDialect_pysqlite(dbapi=sqlite3)

    @property
    def _driver_error(self) -> type[Exception]:
        return sqlite3.Error

    def close(self) -> None:
        super().close()
        if self._watcher is not None:
            self._watcher.close()

    def _tx(self, connection: Any) -> StoreTx:
        return OwnSQLiteTx(self, connection.cursor())

    def _atomic(self, connection: Any) -> AtomicTx:
        return AtomicSQLiteTx(self, connection.cursor())

    def _commit(self, connection: Any) -> None:
        connection.execute("COMMIT")

    def _rollback(self, connection: Any) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    def _fileno(self, connection: Any) -> int | None:
        return None

    def _collided(self, error: BaseException) -> bool:
        return False  # SQLite has waited for a busy file already, and nothing else collides with the only writer

    def _is_lost(self, error: BaseException, connection: Any) -> bool:
        return False

    @property
    def shut(self) -> bool:
        # A deferred transaction may only have read so far; there is no way to know.
        return self.inside and self.connections.wrapper.transaction_mode in ("IMMEDIATE", "EXCLUSIVE")

    # -- work --------------------------------------------------------------------------------------------------

    def read(self, work: Callable[[StoreTx], T]) -> T:
        return self._mended(super().read, work)

    def write(self, work: Callable[[StoreTx], T]) -> T:
        return self._mended(super().write, work)

    def at_once(self, work: Callable[[StoreTx], T]) -> T:
        """Do work in one transaction: without a server, there is no round trip to save."""
        return self._mended(super().at_once if self.inside else super().write, work)

    def due(self, limit: int, hold: float) -> tuple[int, list[JobRow], int | None]:
        # Most ticks find nothing, which needs no write lock to see.
        now, first = self.read(lambda tx: (tx.now, next_due(tx)))
        return (now, [], first) if first is None or first > now else super().due(limit, hold)

    def _mended(self, do: Callable[[Callable[[StoreTx], T]], T], work: Callable[[StoreTx], T]) -> T:
        """Do work; if an altered record makes it fail, set it aside and repeat. Only SQLite accepts any value."""
        try:
            return do(work)
        except ALTERED_ERRORS as error:
            if self.inside or (isinstance(error, MainspringError) and not isinstance(error, UnreadableValue)):
                raise
            number = super().write(self.mend)
            self.suspect = False
            if not number:
                raise
            return do(work)

    # -- errors and waking -------------------------------------------------------------------------------------

    def unavailable(self, error: BaseException, kind: type[StoreUnavailable] = StoreUnavailable) -> StoreUnavailable:
        """Return the error to raise for a driver's error; a locked file has a separate error."""
        if is_undecodable(error):
            self.suspect = True
            kind = UnreadableValue
        return super().unavailable(error, StoreLocked if kind is StoreUnavailable and is_busy(error) else kind)

    def _explain(self, error: BaseException) -> str:
        return "" if self.path is None else explain(error, self.path, self.patience)

    def _data_version(self) -> int:
        """Return a number that changes whenever any process writes to the file."""
        if self.path is None:
            return 0
        if self._watcher is None:
            self._watcher = sqlite3.connect(self.path, check_same_thread=False)
        [version] = self._watcher.execute("PRAGMA data_version").fetchone()
        return int(version)
