"""Add runs inside the user's transaction, with the store's statements over any driver that SQLAlchemy supports."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import BindParameter, TextClause, bindparam, event, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DatabaseError, IntegrityError
from sqlalchemy.orm import Session

from mainspring.core.showing.redaction import without_password
from mainspring.errors import ConfigurationError, TransactionConflict
from mainspring.jobstores.base import RUNS_STEP
from mainspring.jobstores.records.rows import RunRow
from mainspring.jobstores.sqlalchemy import meta
from mainspring.jobstores.sqlalchemy.database import Database
from mainspring.jobstores.sqlalchemy.steps.runs import RunVerbs
from mainspring.jobstores.sqlalchemy.transaction import Row, Set
from mainspring.jobstores.sqlalchemy.waking import RUNS_WORD

__all__ = ["JoinedTx", "add_runs", "tell_after_commit"]

COLLISION_REPEATS: Final = 3
"""Try this many times if another transaction has just stored the same id or unique key."""
WAKE_DELAY_SECONDS: Final = 0.01
"""SQLAlchemy announces the commit of a connection just before it happens, so wake the nodes this much later."""
_WORDS: Final = {"in": "IN ?", "lock": "FOR UPDATE", "skip": "FOR UPDATE SKIP LOCKED", "param": "?"}
_PARAMETER: Final = re.compile(r"IN \?|\?")
_reached: WeakKeyDictionary[Engine, WeakSet[Database]] = WeakKeyDictionary()
"""The databases whose tables each engine is known to reach."""


class JoinedTx(RunVerbs):
    """A transaction that the user has begun and will end."""

    begun = True

    def __init__(self, database: Database, connection: Connection, now: int) -> None:
        super().__init__(database, None)
        self._connection = connection
        self.now = now
        locks = {"lock": "", "skip": ""} if database.kind == "sqlite" else {}
        self._words = {**_WORDS, **locks, **database.names}

    @staticmethod
    def many(values: list[Any], /) -> Any:
        return list(values)

    def all(self, statement: str, *params: Any) -> list[Row]:
        return [tuple(row) for row in self._connection.execute(*self._bound(statement, params))]

    def one(self, statement: str, *params: Any) -> Row | None:
        found = self.all(statement, *params)
        return found[0] if found else None

    def run(self, statement: str, *params: Any) -> int:
        return int(self._connection.execute(*self._bound(statement, params)).rowcount)

    def insert(self, table: str, columns: tuple[str, ...], rows: Sequence[Row]) -> None:
        if rows:
            names = ", ".join(f":{name}" for name in columns)
            statement = text(f"INSERT INTO {self._words[table]} ({', '.join(columns)}) VALUES ({names})")
            self._connection.execute(statement, [dict(zip(columns, row, strict=True)) for row in rows])

    def update(self, table: str, columns: tuple[Set, ...], rows: Sequence[Row]) -> None:
        if rows:
            pairs = [(column, "{new}") if isinstance(column, str) else column for column in columns]
            sets = ", ".join(f"{name} = {value.format(new=f':{name}', old=name)}" for name, value in pairs)
            names = ("id", *(name for name, _ in pairs))
            statement = text(f"UPDATE {self._words[table]} SET {sets} WHERE id = :id")
            self._connection.execute(statement, [dict(zip(names, row, strict=True)) for row in rows])

    def _bound(self, statement: str, params: Sequence[Any]) -> tuple[TextClause, dict[str, Any]]:
        """Return a statement with named parameters, and their values; a list after IN expands to its items."""
        names = [f"p{number}" for number in range(len(params))]
        unused, spread = iter(names), list[BindParameter[Any]]()

        def name(found: re.Match[str]) -> str:
            each = next(unused)
            if found[0] == "?":
                return f":{each}"
            spread.append(bindparam(each, expanding=True))
            return f"IN :{each}"

        bound = text(_PARAMETER.sub(name, statement.format_map(self._words))).bindparams(*spread)
        return bound, dict(zip(names, params, strict=True))


def add_runs(database: Database, connection: Connection, rows: Sequence[RunRow], now: int) -> Any:
    """Add runs in the transaction of a connection; return the answers of `RunVerbs.add_runs`."""
    tx = JoinedTx(database, connection, now)
    _check(database, connection, tx)
    # On PostgreSQL a failed statement ends the transaction, so use a savepoint. In SQLite it does not, and the driver's
    # savepoints would commit.
    plain = database.kind == "sqlite"
    for _ in range(COLLISION_REPEATS):
        try:
            with nullcontext() if plain else connection.begin_nested():
                answers = tx.add_runs(rows)
                if tx.stirred and database.kind == "postgresql":
                    # The server sends the notification with the commit, and never after a rollback.
                    tx.one("SELECT pg_notify(?, ?)", database.waker.channel, f"joined {RUNS_WORD}")  # type: ignore[attr-defined]
            return answers
        except IntegrityError as error:
            collision = error
    raise TransactionConflict(
        "another transaction has just enqueued a run with the same id or unique key, and this one cannot see it; roll "
        "back and begin again"
    ) from collision


def _check(database: Database, connection: Connection, tx: JoinedTx) -> None:
    """Raise ConfigurationError unless the connection reaches the tables of this store."""
    known = _reached.setdefault(connection.engine, WeakSet())
    if database in known:
        return
    made, found = database.read(lambda own: meta.number(own, "made")), None
    kind = "mysql" if connection.dialect.name == "mariadb" else connection.dialect.name
    if kind == database.kind:
        try:
            with nullcontext() if kind == "sqlite" else connection.begin_nested():
                row = tx.one("SELECT value FROM {meta} WHERE name = ?", "made")
                found = None if row is None else row[0]
        except DatabaseError:  # there is no such table
            found = None
    if found is None or found != made:
        theirs = without_password(connection.engine.url.render_as_string(hide_password=True))
        ours = database.connections.where
        raise ConfigurationError(
            f"this transaction belongs to {theirs}, and the runs are kept in {ours}: one commit cannot cover both. "
            "Give the app the URL of the database that your transaction writes to, or keep the store and give the app "
            "outbox=engine, with the engine of your database"
        )
    known.add(database)


def tell_after_commit(database: Database, target: Session | Connection) -> None:
    """Wake sleeping nodes once the transaction is committed; otherwise they would find the runs up to 5 s later."""
    if isinstance(target, Session):
        event.listen(target, "after_commit", lambda session: database.waker.stir(RUNS_STEP), once=True)
        return

    def tell(connection: Connection) -> None:
        timer = threading.Timer(WAKE_DELAY_SECONDS, database.waker.stir, (RUNS_STEP,))
        timer.daemon = True
        timer.start()

    event.listen(target, "commit", tell, once=True)
