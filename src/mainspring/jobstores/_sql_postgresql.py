"""PostgreSQL by psycopg: batches as arrays, rows skipped while others have them locked, LISTEN and NOTIFY to wake."""

from __future__ import annotations

import contextlib
import inspect
import secrets
import time
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg import sql as compose
from sqlalchemy import MetaData, event
from sqlalchemy.engine import Engine

from mainspring.jobstores._sql_database import ANSWER, MIGRATING, TIMEOUT, Row, ServerDatabase, Set, Tx, log
from mainspring.jobstores._sql_schema import Tables, ddl
from mainspring.jobstores._sql_waking import Waker

__all__ = ["CONNECT_ARGS", "PostgreSQLDatabase"]

_MS: Final = int(TIMEOUT * 1000)
CONNECT_ARGS: Final = {
    "connect_timeout": int(TIMEOUT),
    "tcp_user_timeout": _MS,
    "application_name": "mainspring",
    "options": f"-c statement_timeout={_MS} -c lock_timeout={_MS} -c idle_in_transaction_session_timeout=60000",
}

# The start of the statement, so that one transaction never sees time go back and the planner may use it.
_NOW: Final = "SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint"
_BEGIN: Final = f"BEGIN ISOLATION LEVEL READ COMMITTED; {_NOW}"
_TYPES: Final = {
    **dict.fromkeys(("payload", "state", "live", "frame", "info"), "bytea"),
    **dict.fromkeys(
        ("at", "nominal", "due_at", "version", "incarnation", "run_at", "created_at", "finished_at", "keep"), "bigint"
    ),
    **dict.fromkeys(("lease_until", "expires_at", "broken_at", "n", "value"), "bigint"),
    **dict.fromkeys(("priority", "attempt", "cancelling", "slot"), "integer"),
}
_RETRIED: Final = frozenset({"40001", "40P01", "23505"})  # serialization, deadlock, a unique key taken meanwhile


_TIMED: Final = "timeout" in inspect.signature(psycopg.Connection.wait).parameters  # since psycopg 3.3


class TimedConnection(psycopg.Connection[Any]):
    """A connection that gives up when the server does not answer at all, as one that is frozen does not."""

    def wait(self, *args: Any, **options: Any) -> Any:
        """Wait for the server, but not for ever."""
        if options.get("timeout") is None:
            options["timeout"] = ANSWER
        try:
            return super().wait(*args, **options)
        except psycopg.errors._WaitTimeout as error:
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer for {options['timeout']:g} s") from error


class PostgreSQLTx(Tx):
    """A transaction on a pooled connection."""

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        if rows:
            values, source, params = _source(columns, rows)
            names = ", ".join(columns)
            self.cursor.execute(
                f"INSERT INTO {self.database.name(table)} ({names}) SELECT {', '.join(values)} FROM {source}", params
            )

    def update(self, table: str, columns: Sequence[Set], rows: Sequence[Row]) -> None:
        if rows:
            names = ["id", *(column if isinstance(column, str) else column[0] for column in columns)]
            values, source, params = _source(names, rows)
            sets = []
            for column, value in zip(columns, values[1:], strict=True):
                name, said = (column, "{new}") if isinstance(column, str) else column
                sets.append(f"{name} = {said.format(new=value, old=f'old.{name}')}")
            statement = f"UPDATE {self.database.name(table)} AS old SET {', '.join(sets)} FROM {source}"
            self.cursor.execute(f"{statement} WHERE old.id = new.id", params)

    def _read_clock(self) -> int:
        now: int = self.cursor.execute(_NOW).fetchone()[0]
        return now

    def begin(self) -> None:
        """Begin, and read the clock in the same round trip."""
        self.cursor.execute(_BEGIN)
        self.cursor.nextset()
        self._now = self.cursor.fetchone()[0] + self.database.shift


def _source(columns: Sequence[str], rows: Sequence[Row]) -> tuple[list[str], str, list[Any]]:
    """Return the expression of each column, what they are selected from, and the parameters of both.

    A column that is the same in all rows, as most are in a batch, is one parameter; the others are arrays.
    """
    values, arrays, names = [], [], []
    scalars: list[Any] = []
    lists: list[Any] = []
    for number, (column, given) in enumerate(zip(columns, zip(*rows, strict=True), strict=True)):
        kind = _TYPES.get(column, "text")
        if number and given.count(given[0]) == len(given):
            values.append(f"%b::{kind}")
            scalars.append(given[0])
        else:
            values.append(f"new.{column}")
            names.append(column)
            arrays.append(f"%b::{kind}[]")
            lists.append(list(given))
    return values, f"unnest({', '.join(arrays)}) AS new({', '.join(names)})", [*scalars, *lists]


class PostgreSQLDatabase(ServerDatabase):
    """A PostgreSQL database."""

    kind = "postgresql"
    placeholder = "%s"
    words: Final = {  # type: ignore[misc]
        "in": "= ANY(?)",
        "lock": "FOR UPDATE",
        "skip": "FOR UPDATE SKIP LOCKED",
        "param": "CAST(? AS text)",
    }

    def __init__(self, engine: Engine, tablename: str, metadata: MetaData, schema: str | None, *, own: bool) -> None:
        super().__init__(engine, tablename, metadata, schema, own=own)
        self.waker = NotifyWaker(self, tablename)
        if own and _TIMED:
            event.listen(engine, "do_connect", _connect)

    @property
    def _driver_error(self) -> type[Exception]:
        return psycopg.Error

    def _prepare(self) -> str | None:
        self.read(lambda tx: tx.one("SELECT 1"))
        return None

    def _migrate(self, tables: Tables) -> None:
        def create(tx: Tx) -> bool:
            # Held until the transaction ends: of several nodes that start at once, the others find everything done.
            name = f"mainspring:{tables.meta.fullname}"
            if tx.one("SELECT pg_try_advisory_xact_lock(hashtext(?))", name) != (True,):
                return False
            if tx.one("SELECT to_regclass(?)", self.name("meta")) == (None,):
                for statement in ddl(tables.all(), self.engine.dialect):
                    tx.cursor.execute(statement)
                self._first_rows(tx)
            return True

        deadline = time.monotonic() + MIGRATING
        while not self.write(create):
            if time.monotonic() > deadline:
                raise self.unavailable(TimeoutError(f"another node has been creating tables for {MIGRATING} s"))
            time.sleep(0.05)

    def _has_apscheduler(self) -> bool:
        return self.read(lambda tx: tx.one("SELECT to_regclass('apscheduler_jobs')")) != (None,)

    def _tx(self, connection: Any) -> Tx:
        return PostgreSQLTx(self, connection.cursor())

    def _begin(self, connection: Any) -> Tx:
        tx = PostgreSQLTx(self, connection.cursor())
        tx.begin()
        return tx

    def _commit(self, connection: Any) -> None:
        connection.execute("COMMIT")

    def _rollback(self, connection: Any) -> None:
        connection.execute("ROLLBACK")

    def _set_autocommit(self, connection: Any) -> None:
        if not connection.autocommit:
            connection.autocommit = True

    def _collided(self, error: BaseException) -> bool:
        return getattr(error, "sqlstate", None) in _RETRIED


def _connect(dialect: Any, record: Any, args: Any, options: dict[str, Any]) -> Any:
    return TimedConnection.connect(*args, **options)


class NotifyWaker(Waker):
    """Tells the other nodes by NOTIFY, seldom, since it puts commits in line; listens on a connection of its own."""

    pause = 0.05

    def __init__(self, database: PostgreSQLDatabase, tablename: str) -> None:
        super().__init__()
        self._database = database
        self._channel = tablename[:60]
        self._self = secrets.token_hex(8)
        self._connection: Any = None

    def prepare(self) -> None:
        if self._connection is None:
            database = self._database
            try:
                fairy = database.engine.raw_connection()
                self._connection = fairy.driver_connection
                fairy.detach()
                self._connection.autocommit = True
                self._connection.execute(compose.SQL("LISTEN {}").format(compose.Identifier(self._channel)))
            except Exception as error:
                self.end()
                raise database.unavailable(error) from error
            self.move()  # what happened while nobody listened may have been missed

    def end(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
            self._connection = None

    def fileno(self) -> int | None:
        return None if self._connection is None else int(self._connection.fileno())

    def receive(self) -> bool:
        """Take the notifications that have come; a lost connection may have lost some."""
        others = False
        try:
            wire = self._connection.pgconn
            wire.consume_input()
            while note := wire.notifies():
                others |= note.extra.decode() != self._self
        except psycopg.Error as error:
            log.info("the connection that listens for changes was lost: %s", self._database.unavailable(error))
            self.end()
            return True
        return others

    def tell(self) -> None:
        self._database.read(lambda tx: tx.one("SELECT pg_notify(?, ?)", self._channel, self._self))
