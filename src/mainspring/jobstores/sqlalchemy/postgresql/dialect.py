"""PostgreSQL with psycopg: send batches as arrays, skip locked rows, and wake nodes by LISTEN and NOTIFY."""

from __future__ import annotations

import contextlib
import inspect
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeVar

import psycopg
from psycopg import sql as compose
from sqlalchemy import MetaData, Table, event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError

from mainspring.jobstores.base import RUNS_STEP, Answers
from mainspring.jobstores.records.rows import SettleRow
from mainspring.jobstores.sqlalchemy.connections import Connections
from mainspring.jobstores.sqlalchemy.database import (
    ANSWER_TIMEOUT_SECONDS,
    CREATE_TIMEOUT_SECONDS,
    STEP_TIMEOUT_SECONDS,
    StoreTx,
    log,
)
from mainspring.jobstores.sqlalchemy.postgresql.connection import TimedConnection
from mainspring.jobstores.sqlalchemy.postgresql.statements import PostgreSQLTx
from mainspring.jobstores.sqlalchemy.server import IDLE_TRANSACTION_SECONDS, ServerDatabase
from mainspring.jobstores.sqlalchemy.steps.claims import KEEP_CLAIM
from mainspring.jobstores.sqlalchemy.steps.runs import are_ends, is_plain_end
from mainspring.jobstores.sqlalchemy.waking import RUNS_WORD, AwaitedMark, Waker

__all__ = ["CONNECT_ARGS", "NotifyWaker", "PostgreSQLDatabase", "never_wait_for_ever"]

T = TypeVar("T")

_MS: Final = int(STEP_TIMEOUT_SECONDS * 1000)
CONNECT_ARGS: Final = {
    "connect_timeout": int(STEP_TIMEOUT_SECONDS),
    "tcp_user_timeout": _MS,
    "application_name": "mainspring",
    # Plan once for all batches, and use the indexes: the statistics of a table that fills and empties are misleading.
    "options": f"-c statement_timeout={_MS} -c lock_timeout={_MS}"
    f" -c idle_in_transaction_session_timeout={IDLE_TRANSACTION_SECONDS * 1000}"
    " -c plan_cache_mode=force_generic_plan -c enable_seqscan=off"
    " -c jit=off",  # compiling would take longer than the statements
}

# A serialization failure, a deadlock, a unique key taken meanwhile, a transaction that the server ended as idle.
_RETRIED: Final = frozenset({"40001", "40P01", "23505", "25P03"})

_POOLER: Final = (
    "a pooler in transaction mode is in between, which needs the settings that docs/stores/sql.md tells: "
    "prepare_threshold=None here, ignore_startup_parameters = options there"
)
_MEANINGS: Final = {
    "25006": "the server takes no writes, as a standby does not; connect to the primary",
    "26000": _POOLER,  # the prepared statement is on another connection of the pooler
    "42P05": _POOLER,  # or another client has prepared it on this one
    "53100": "the server's disk is full; make room there, then it goes on by itself",
    "53300": "the server has no connection left; raise its limit, or give the store fewer by "
    "engine_options={'pool_size': 3, 'max_overflow': 0}",
}
_WORDS: Final = {"unsupported startup parameter": "26000", "too many connections": "53300", "too many clients": "53300"}

_TIMED: Final = "timeout" in inspect.signature(psycopg.Connection.wait).parameters  # since psycopg 3.3


class PostgreSQLDatabase(ServerDatabase):
    """A PostgreSQL database."""

    kind = "postgresql"
    placeholder = "%s"
    words: Final = {  # type: ignore[misc]
        "in": "= ANY(?)",
        "lock": "FOR UPDATE",
        "skip": "FOR UPDATE SKIP LOCKED",
        "param": "CAST(? AS text)",
        "each": "SELECT unnest(CAST(? AS text[])) AS name",
        "levels": "unnest(CAST(? AS text[]), CAST(? AS integer[])) AS level(lane, priority)",
    }

    def __init__(self, connections: Connections, tablename: str, metadata: MetaData, schema: str | None) -> None:
        super().__init__(connections, tablename, metadata, schema)
        self.waker, self.ends = NotifyWaker(self, tablename), EndNotifyWaker(self, f"{tablename[:55]}~ends")

    @property
    def _driver_error(self) -> type[Exception]:
        return psycopg.Error

    def settle(self, outcomes: Sequence[SettleRow]) -> Answers[bool]:
        """Settle in one statement if all runs end and, as far as their claims know, nothing follows from that.

        That statement skips runs that got a successor or a gate meanwhile; a separate transaction settles those.
        """
        if not (are_ends(outcomes) and all(is_plain_end(each) for each in outcomes)):
            return super().settle(outcomes)
        written: Collection[str] = self.at_once(lambda tx: tx.finish(outcomes))  # type: ignore[attr-defined]
        if len(written) == len(outcomes):
            return Answers([True] * len(outcomes))
        left = [each for each in outcomes if each.run.id not in written]
        answers = super().settle(left) if left else Answers()
        more = {each.run.id for each, accepted in zip(left, answers, strict=True) if accepted}
        return Answers([each.run.id in written or each.run.id in more for each in outcomes], answers.refused)

    def keep_claim(self, token: str) -> None:
        self.at_once(lambda tx: tx.run(KEEP_CLAIM, token))

    def _locked(self, work: Callable[[StoreTx], T]) -> T:
        def attempt(tx: StoreTx) -> tuple[T] | None:
            # Hold the lock until the transaction ends: nodes that start meanwhile then find all tables created.
            name = f"mainspring:{self.names['meta']}"
            if tx.one("SELECT pg_try_advisory_xact_lock(hashtext(?))", name) != (True,):
                return None
            tx.run(f"SET LOCAL statement_timeout = {CREATE_TIMEOUT_SECONDS * 1000}")
            tx.cursor.connection.patience = CREATE_TIMEOUT_SECONDS
            try:
                return (work(tx),)
            finally:
                tx.cursor.connection.patience = ANSWER_TIMEOUT_SECONDS

        deadline = time.monotonic() + CREATE_TIMEOUT_SECONDS
        while (done := self.write(attempt)) is None:
            if time.monotonic() > deadline:
                raise self.unavailable(
                    TimeoutError(f"another node has been creating the tables for {CREATE_TIMEOUT_SECONDS} s")
                )
            time.sleep(0.05)
        return done[0]

    def _columns(self, tx: StoreTx, table: Table) -> set[str]:
        found = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped"
        return {name for (name,) in tx.all(found, self.connections.dialect.identifier_preparer.format_table(table))}

    def _tx(self, connection: Any) -> StoreTx:
        own = isinstance(connection, TimedConnection)
        return PostgreSQLTx(self, connection.own_cursor if own else connection.cursor(binary=True))

    def _commit(self, connection: Any) -> None:
        connection.execute("COMMIT", prepare=False)

    def _rollback(self, connection: Any) -> None:
        connection.execute("ROLLBACK", prepare=False)

    def _set_autocommit(self, connection: Any) -> None:
        if not connection.autocommit:
            connection.autocommit = True

    def _fileno(self, connection: Any) -> int | None:
        return None if connection.closed else int(connection.fileno())

    def _collided(self, error: BaseException) -> bool:
        return getattr(error, "sqlstate", None) in _RETRIED

    def _explain(self, error: BaseException) -> str:
        cause = error.__cause__ if isinstance(error, SQLAlchemyError) else error
        meaning = _MEANINGS.get(getattr(cause, "sqlstate", None) or "", "")
        # Errors while connecting have no code.
        return meaning or next((_MEANINGS[code] for words, code in _WORDS.items() if words in str(cause)), "")


def never_wait_for_ever(engine: Engine) -> None:
    """Make the connections of an engine give up on a server that does not answer at all."""
    if _TIMED:
        event.listen(engine, "do_connect", _connect)


def _connect(dialect: Any, record: Any, args: Any, options: dict[str, Any]) -> Any:
    return TimedConnection.connect(*args, **options)


class NotifyWaker(Waker):
    """A waker by NOTIFY, rarely sent because it serializes commits; it listens on a separate connection."""

    pause = 0.01

    def __init__(self, database: PostgreSQLDatabase, tablename: str) -> None:
        super().__init__()
        self._database = database
        self.channel = tablename[:60]
        self._self = secrets.token_hex(8)
        self._connection: Any = None

    def prepare(self) -> None:
        if self._connection is None:
            database = self._database
            try:
                self._connection = database.connections.separate()
                self._connection.autocommit = True
                self._connection.execute(compose.SQL("LISTEN {}").format(compose.Identifier(self.channel)))
            except Exception as error:
                self.end()
                raise database.unavailable(error) from error
            self.move()  # this process may have missed changes while it did not listen

    def end(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
            self._connection = None

    def fileno(self) -> int | None:
        return None if self._connection is None else int(self._connection.fileno())

    def receive(self) -> int:
        """Read the notifications; return 1 if the connection was lost, since some may be lost with it."""
        step = 0
        try:
            wire = self._connection.pgconn
            wire.consume_input()
            while note := wire.notifies():
                teller, _, word = note.extra.decode().partition(" ")
                if teller != self._self:
                    step += RUNS_STEP if word == RUNS_WORD else 1
        except psycopg.Error as error:
            log.info("the connection that listens for changes was lost: %s", self._database.unavailable(error))
            self.end()
            return 1
        return step

    def tell(self, step: int) -> None:
        said = self._self if step % RUNS_STEP else f"{self._self} {RUNS_WORD}"
        self._database.read(lambda tx: tx.notify(self.channel, said))  # type: ignore[attr-defined]


class EndNotifyWaker(NotifyWaker):
    """A waker for ends of runs: it sends them while any process waits for one, and listens while this process waits."""

    pause = 0.002

    def __init__(self, database: PostgreSQLDatabase, channel: str) -> None:
        super().__init__(database, channel)
        self._mark = AwaitedMark(database)

    def prepare(self) -> None:
        super().prepare()
        if self._mark.renew():
            self.move()
