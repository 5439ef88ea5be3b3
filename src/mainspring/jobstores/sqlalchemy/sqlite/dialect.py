"""SQLite: each process has one writer connection with group commit and several readers; sockets wake the others."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import Table, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from mainspring.core.lanes import Want
from mainspring.errors import ConfigurationError, MainspringError, OutcomeUnknown, StoreLocked, StoreUnavailable
from mainspring.interrupts import sheltered
from mainspring.jobstores.base import RUNS_STEP
from mainspring.jobstores.records.rows import JobRow
from mainspring.jobstores.sqlalchemy.connections import PooledConnections
from mainspring.jobstores.sqlalchemy.database import (
    CREATE_TIMEOUT_SECONDS,
    STEP_TIMEOUT_SECONDS,
    Database,
    StoreTx,
    UnreadableValue,
    log,
)
from mainspring.jobstores.sqlalchemy.sqlite import forks
from mainspring.jobstores.sqlalchemy.sqlite.errors import explain, is_busy, is_undecodable, is_undone
from mainspring.jobstores.sqlalchemy.sqlite.host_clock import HostClock
from mainspring.jobstores.sqlalchemy.sqlite.sockets import SocketWaker
from mainspring.jobstores.sqlalchemy.sqlite.transactions import SQLiteTx
from mainspring.jobstores.sqlalchemy.steps.claims import KEEP_CLAIM, Claimed
from mainspring.jobstores.sqlalchemy.steps.jobs import next_due

__all__ = ["ALTERED_ERRORS", "SQLiteDatabase"]

T = TypeVar("T")

CALLERS_PER_COMMIT: Final = 64
"""At most this many callers share a commit."""

OLDEST_SQLITE: Final = (3, 37)
"""The first version in which a table can be strict about the types of its values."""

ALTERED_ERRORS: Final = (TypeError, ValueError, ArithmeticError, UnreadableValue)
"""The errors that an altered value causes."""

_LASTING: Final = attrgetter("lasting")

BUSY_TIMEOUT_MS: Final = 10
"""SQLite itself waits this many milliseconds for the write lock."""


class _SharedWork(msgspec.Struct, eq=False):  # with gc: the traceback of its error refers back to it
    """One caller's work, waiting for a commit that it may share with others."""

    work: Callable[[StoreTx], Any]
    lasting: bool = True
    result: Any = None
    error: BaseException | None = None
    committed: bool = False


class SQLiteDatabase(Database):
    """A SQLite file, shared by threads and processes of one host."""

    kind = "sqlite"
    words: Final = {  # type: ignore[misc]
        "in": "IN (SELECT value FROM json_each(?))",
        "lock": "",
        "skip": "",
        "param": "?",
        "each": "SELECT value AS name FROM json_each(?)",
        "levels": "(SELECT json_extract(value, '$[0]') AS lane, json_extract(value, '$[1]') AS priority"
        " FROM json_each(?)) AS level",
    }

    def __init__(self, connections: PooledConnections, tablename: str, *names: Any, synchronous: str = "FULL") -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            oldest = ".".join(map(str, OLDEST_SQLITE))
            raise ConfigurationError(
                f"SQLite {oldest} or newer is needed, and this Python brings {sqlite3.sqlite_version}; use a newer "
                "Python or another store"
            )
        super().__init__(connections, tablename, *names)
        self.engine = connections.engine
        self.clock = HostClock()
        self._named, self.path = _paths(self.engine.url)
        self._files: dict[str, os.stat_result] = {}
        """The identities of the file and of those beside it, as they were opened: other files may replace them."""
        self.waker = SocketWaker(self.path, tablename)
        # A process that waits for ends of runs has a socket of this name beside the file: so a sender sees whether any
        # process waits.
        self.ends = SocketWaker(self.path, f"{tablename}~ends", look_every=None)
        self.waker.data_version = self.ends.data_version = self._data_version
        self._synchronous = self._quicker = self._present = synchronous
        """How commits wait for the disk: as the user has set it, those of claims, and the writer's present setting."""
        self._writer: Any = None
        self._turn = threading.Lock()
        self._queue_lock = threading.Lock()
        self._queue: list[_SharedWork] = []
        self._watcher: Any = None
        self._closed = False
        self.suspect = False
        """True after an invalid text was found, so that the sweep must check every text."""
        self.slot = 0
        forks.watch(self._turn)
        if connections.own:
            event.listen(self.engine, "connect", self._refuse_another_file)

    # -- opening -----------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the file, and remember its identity."""
        super().open()
        self._note_files()

    def _prepare(self) -> str | None:
        self._writer = self._connect(writer=True)
        return None

    def _connect(self, *, writer: bool = False) -> sqlite3.Connection:
        """Open a connection outside of the pool; as the writer, with the log and the settings of commits."""
        try:
            connection = self.connections.separate()
            if not isinstance(connection, sqlite3.Connection):
                raise TypeError(f"the SQLite driver {self.engine.driver!r} cannot be used; use sqlite:/// URLs")
            connection.isolation_level = None
            connection.execute(f"PRAGMA busy_timeout = {int(STEP_TIMEOUT_SECONDS * 1000)}")
            if writer:
                self._quicker = self._synchronous  # without a write-ahead log, a quicker setting might harm the file
                if self._use_wal(connection):
                    # SQLite's own wait polls less and less often, so it may never get the lock while other processes
                    # write all the time. So let it wait only briefly, and try again and again.
                    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
                    self._quicker = "NORMAL"
                connection.execute(f"PRAGMA synchronous = {self._synchronous}")
                self._present = self._synchronous
                connection.execute("PRAGMA cache_size = -16000")
        except (sqlite3.Error, SQLAlchemyError, OSError) as error:
            raise self.unavailable(error) from error
        return connection

    def _use_wal(self, connection: sqlite3.Connection) -> bool:
        """Use a write-ahead log, so that readers and the writer do not block each other; return False if it cannot."""
        # Two processes may start at once, and changing the mode does not wait for a lock as other statements do.
        deadline = time.monotonic() + STEP_TIMEOUT_SECONDS
        while True:
            try:
                [mode] = connection.execute("PRAGMA journal_mode = WAL").fetchone()
                break
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        if mode != "wal" and self.path is not None:
            log.warning("%s cannot use a write-ahead log (its journal mode is %s): readers will wait", self.path, mode)
        return bool(mode == "wal")

    def _locked(self, work: Callable[[StoreTx], T]) -> T:
        deadline = time.monotonic() + CREATE_TIMEOUT_SECONDS
        while True:
            try:
                return self.write(work)
            except StoreUnavailable as error:
                if not is_busy(error.__cause__) or time.monotonic() > deadline:
                    raise

    def _columns(self, tx: StoreTx, table: Table) -> set[str]:
        return {name for (name,) in tx.all("SELECT name FROM pragma_table_info(?)", table.name)}

    def _note_files(self) -> None:
        if self.path is None:
            return
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                self._files.setdefault(suffix, os.stat(f"{self.path}{suffix}"))

    def close(self) -> None:
        self.waker.close()
        self.ends.close()
        with self._turn:
            self._closed = True
            writer, self._writer = self._writer, None
            watcher, self._watcher = self._watcher, None
            for connection in (watcher, writer):
                if connection is not None:
                    connection.close()
        self.connections.close()

    # -- another file in its place ------------------------------------------------------------------------------

    def is_replaced(self) -> bool:
        """Return True if another file is at the path of the open one; raise StoreUnavailable if no file is there."""
        if self._named is None or not self._files:
            return False
        try:
            return not os.path.samestat(os.stat(self._named), self._files[""])
        except FileNotFoundError:
            raise StoreUnavailable(
                f"{self._named} was deleted while it was in use; put it back, or restart to begin with an empty one"
            ) from None

    def _refuse_another_file(self, connection: sqlite3.Connection, record: object) -> None:
        """Close a new connection, before its first statement, if another file has replaced the open one.

        The connection would use the log of the old file, which still lies beside the new file, and could even write
        that log into the new file.
        """
        if self.is_replaced():
            connection.close()
            raise StoreUnavailable(f"{self._named} was replaced by another file while it was in use; try again")

    def abandon(self) -> None:
        """Abandon a file that another has replaced.

        The connections stay open for ever: closing the last one would delete the write-ahead log at its path, and by
        now that log may belong to the new file. If it still belongs to the old file, rename it: the new file must not
        use it.
        """
        self.waker.close()
        self.ends.close()
        with self._turn:
            self._closed = True
            for each in (self._writer, self._watcher, self.engine.pool):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
        self.engine.dispose(close=False)
        for suffix in ("-wal", "-shm"):
            with contextlib.suppress(OSError):
                if suffix in self._files and os.path.samestat(self._files[suffix], os.stat(f"{self.path}{suffix}")):
                    os.replace(f"{self.path}{suffix}", f"{self.path}{suffix}-replaced")

    # -- reading and writing -----------------------------------------------------------------------------------

    @sheltered
    def read(self, work: Callable[[StoreTx], T]) -> T:
        """Do read-only work on a pooled connection."""
        if self.path is None:  # a database in memory has one connection
            return self.write(work)
        try:
            return self._read(work)
        except ALTERED_ERRORS as error:
            self._mend(error)
            return self._read(work)

    @sheltered
    def write(self, work: Callable[[StoreTx], T], *, lasting: bool = True, mended: bool = False) -> T:
        """Do work in a transaction; callers that wait at the same time share one, each behind a savepoint.

        A power failure may undo work that is not `lasting`, until a lasting commit follows. If an altered record makes
        the work fail, set the record aside and do the work again, unless that is `mended` already.
        """
        item = _SharedWork(work, lasting)
        try:
            with self._queue_lock:
                self._queue.append(item)
            with self._turn:
                if item in self._queue:  # otherwise the leader of another group has taken it and done it
                    with self._queue_lock:
                        group, self._queue = self._queue[:CALLERS_PER_COMMIT], self._queue[CALLERS_PER_COMMIT:]
                    if item not in group:  # a full group was ahead of it: it joins that group
                        with self._queue_lock:
                            self._queue.remove(item)
                        group.append(item)
                    self._lead(group)
        except BaseException:  # an interrupt: no other thread may do this work later
            with self._queue_lock, contextlib.suppress(ValueError):
                self._queue.remove(item)
            raise
        error = item.error
        if isinstance(error, ALTERED_ERRORS) and not mended:
            self._mend(error)
            return self.write(work, lasting=lasting, mended=True)
        if error is not None:
            raise error
        if not item.committed:
            raise OutcomeUnknown("a signal interrupted the thread that was writing this too; repeating it is safe")
        result: T = item.result
        return result

    at_once = write

    def claim(self, wants: Sequence[Want], node: str, token: str, lease: float) -> Claimed:
        return self.write(lambda tx: tx.claim(wants, node, token, lease), lasting=False)

    def keep_claim(self, token: str) -> None:
        if self._quicker != self._synchronous:
            self.write(lambda tx: tx.run(KEEP_CLAIM, token))

    def due(self, limit: int, hold: float) -> tuple[int, list[JobRow], int | None]:
        # Most looks find nothing, and seeing that needs no write lock. Hiding the found jobs from other schedulers is
        # only a hint, so it need not wait for the disk.
        first = self.read(next_due)
        now = self.clock.now() + self.shift
        if first is None or first > now:
            return now, [], first
        return self.write(lambda tx: tx.due(limit, hold), lasting=False)

    def _mend(self, error: Exception) -> None:
        """Set aside the altered records that may have made work fail; raise the error if there are none.

        Only SQLite needs this: other databases accept only valid values of the right type in a column.
        """
        if isinstance(error, MainspringError) and not isinstance(error, UnreadableValue):
            raise error
        number = self.write(self.mend, mended=True)
        self.suspect = False
        if not number:
            raise error

    def _read(self, work: Callable[[StoreTx], T]) -> T:
        try:
            with forks.readers:
                fairy = self.connections.take()
                cursor: sqlite3.Cursor = fairy.driver_connection.cursor()
                try:
                    return work(SQLiteTx(self, cursor))
                finally:
                    cursor.close()  # after a failed statement, it would keep the next one on the same state of the file
                    self.connections.give_back(fairy)
        except (sqlite3.Error, SQLAlchemyError) as error:
            raise self.unavailable(error) from error

    def _lead(self, group: list[_SharedWork]) -> None:
        """Do the work of a group of callers, and commit once; if the transaction fails, each of them gets the error."""
        try:
            connection = self._begin(lasting=any(map(_LASTING, group)))
            cursor = connection.cursor()
            alone, stirred, rescheduled, ended = len(group) == 1, False, False, False
            for item in group:
                tx = self._do(item, cursor, alone=alone)
                if tx is not None:
                    stirred, rescheduled = stirred or tx.stirred, rescheduled or tx.rescheduled
                    ended = ended or tx.ended
                elif alone:
                    self._roll_back(connection)
                    return
            try:
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                if not is_undone(error):
                    raise self.unavailable(error, OutcomeUnknown) from error
                raise
        except BaseException as error:
            if self._writer is not None:
                self._roll_back(self._writer)
            if not isinstance(error, Exception):
                raise
            failure = self._translated(error)
            for item in group:
                item.error = failure
            return
        for item in group:
            item.committed = True
        if self._files and "-shm" not in self._files:  # both files appear with the first write in this journal mode
            self._note_files()
        if stirred or rescheduled:
            self.waker.stir(1 if rescheduled else RUNS_STEP)
        if ended:
            self.ends.stir()

    def _begin(self, *, lasting: bool) -> sqlite3.Connection:
        """Take the write lock, which all processes share; say before whether the commit has to wait for the disk."""
        if self._closed:
            raise StoreUnavailable(f"{self.path or 'the database'} has been closed")
        if self._writer is None:  # broken by an error
            self._writer = self._connect(writer=True)
        connection: sqlite3.Connection = self._writer
        if connection.in_transaction:  # an interrupt came during the last rollback
            connection.execute("ROLLBACK")
        wanted = self._synchronous if lasting else self._quicker
        if wanted != self._present:
            self._present = ""  # unknown: an interrupt may come before or after the next statement
            connection.execute(f"PRAGMA synchronous = {wanted}")
            self._present = wanted
        deadline = time.monotonic() + STEP_TIMEOUT_SECONDS
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return connection
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise

    def _do(self, item: _SharedWork, cursor: sqlite3.Cursor, *, alone: bool) -> SQLiteTx | None:
        """Do one caller's work; return its transaction, or None after an error, which only this caller gets."""
        tx = SQLiteTx(self, cursor)
        tx.now = self.clock.now() + self.shift
        if not alone:
            cursor.execute("SAVEPOINT one")
        try:
            item.result = item.work(tx)
        except Exception as error:
            if not cursor.connection.in_transaction:  # SQLite has rolled back the work of the whole group
                raise
            item.error = self._translated(error)
            if not alone:
                cursor.execute("ROLLBACK TO one")
                cursor.execute("RELEASE one")
            return None
        if not alone:
            cursor.execute("RELEASE one")
        return tx

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._writer = None
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _translated(self, error: BaseException) -> BaseException:
        if isinstance(error, MainspringError) or not isinstance(error, sqlite3.Error | SQLAlchemyError):
            return error
        translated = self.unavailable(error)
        translated.__cause__ = error
        return translated

    def unavailable(self, error: BaseException, kind: type[StoreUnavailable] = StoreUnavailable) -> StoreUnavailable:
        """Return the error to raise for a driver's error; a locked file and an invalid text have their own kinds."""
        locked = kind is StoreUnavailable and is_busy(error.__cause__ if isinstance(error, SQLAlchemyError) else error)
        if is_undecodable(error):
            self.suspect = True
            kind = UnreadableValue
        return super().unavailable(error, StoreLocked if locked else kind)

    def _explain(self, error: BaseException) -> str:
        cause = error.__cause__ if isinstance(error, SQLAlchemyError) else error
        return "" if self.path is None or cause is None else explain(cause, self.path, STEP_TIMEOUT_SECONDS)

    # -- waking ------------------------------------------------------------------------------------------------

    def _data_version(self) -> int:
        """Return a number that changes whenever any process writes to the file."""
        with forks.readers:
            if self._watcher is None:
                self._watcher = self._connect()
            [version] = self._watcher.execute("PRAGMA data_version").fetchone()
        return int(version)


def _paths(url: URL) -> tuple[str | None, str | None]:
    """Return the file's path as given and its real path, or None if the database is in memory."""
    name = url.database
    if not name or name == ":memory:" or "mode=memory" in name or url.query.get("mode") == "memory":
        return None, None
    named = os.path.abspath(name.removeprefix("file:").partition("?")[0])
    return named, os.path.realpath(named)
