"""An outbox: runs for a store that a SQL transaction cannot reach wait in a table until the transaction is committed.

The process that commits hands the runs over. If it dies first, any node that has the outbox hands them over. The store
knows the ids of its runs, so it stores a run once even if it gets it twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import BigInteger, Column, Engine, Index, LargeBinary, MetaData, String, Table, delete, insert, select
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from mainspring.core.instants import SECOND
from mainspring.core.showing.redaction import without_password
from mainspring.errors import ConfigurationError, StoreUnavailable
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.records.rows import RunRow
from mainspring.jobstores.sqlalchemy.schema import RUN_ID_LENGTH
from mainspring.locks import free_in_children

__all__ = ["Outbox", "RunOutbox"]

BATCH_RUNS: Final = 1000
RELAY_AFTER_US: Final = 5 * SECOND
"""Relay runs that nobody has handed over for this long: the process that committed them has probably died."""

log = logging.getLogger("mainspring.outbox")


class RunOutbox:
    """A table in the user's database with runs for a store elsewhere, written by the user's transactions."""

    def add(self, connection: Any, rows: Sequence[RunRow], now: int) -> None:
        """Write runs in the caller's transaction."""
        raise NotImplementedError

    def holds(self, run_id: str) -> bool:
        """Return True if a committed run has not been handed over yet."""
        raise NotImplementedError

    def hand_over(self, store: JobStore, ids: Sequence[str]) -> None:
        """Hand runs over to the store; log a failure, since a node will relay them later."""
        try:
            for start in range(0, len(ids), BATCH_RUNS):
                self._pass_on(store, self.read(ids=ids[start : start + BATCH_RUNS]))
        except (StoreUnavailable, SQLAlchemyError, OSError) as error:
            self.warn(len(ids), error)

    def relay(self, store: JobStore, now: int) -> int:
        """Hand over the runs that have waited too long; return how many."""
        relayed = 0
        while number := self._pass_on(store, self.read(until=now - RELAY_AFTER_US)):
            relayed += number
        if relayed:
            log.warning("relayed %d runs that were committed and not handed over", relayed)
        return relayed

    def warn(self, number: int, error: Exception) -> None:
        """Log that runs were not handed over."""
        log.warning("%d runs stay in the outbox until a node relays them: %s", number, error)

    def read(self, *, ids: Sequence[str] | None = None, until: int = 0) -> list[tuple[str, bytes]]:
        """Return a batch of packed runs: these, or those that were written until then."""
        raise NotImplementedError

    def delete(self, ids: Sequence[str]) -> None:
        """Delete runs that the store has."""
        raise NotImplementedError

    def _pass_on(self, store: JobStore, found: Sequence[tuple[str, bytes]]) -> int:
        """Store a batch, then delete it: a crash in between repeats the first step, which then changes nothing."""
        if found:
            store.add_runs([msgspec.msgpack.decode(row, type=RunRow) for _, row in found])  # type: ignore[misc]
            self.delete([run_id for run_id, _ in found])
        return len(found)


class Outbox(RunOutbox):
    """The table `<prefix>_outbox` in the database of a SQLAlchemy engine."""

    def __init__(self, engine: Engine, prefix: str = "mainspring") -> None:
        if not isinstance(engine, Engine):
            raise ConfigurationError(
                f"outbox must be a SQLAlchemy engine, not {engine!r}; beside an async engine, make a plain one with "
                "create_engine() for the same database"
            )
        self.engine = engine
        self._made = False
        self._making = free_in_children(threading.Lock())
        self._table = Table(
            f"{prefix}_outbox",
            MetaData(),
            Column("id", String(RUN_ID_LENGTH), primary_key=True),
            Column("row", LargeBinary(2**20 * 2), nullable=False),
            Column("created_at", BigInteger, nullable=False),
        )
        Index(f"{prefix}_outbox_age", self._table.c.created_at)

    def add(self, connection: Connection, rows: Sequence[RunRow], now: int) -> None:
        """Write runs in the transaction of a connection; raise ConfigurationError if it is another database's."""
        self._make()
        if connection.engine.url.set(drivername="x") != self.engine.url.set(drivername="x"):
            theirs, ours = (without_password(each.url.render_as_string()) for each in (connection.engine, self.engine))
            raise ConfigurationError(
                f"this transaction belongs to {theirs}, and the outbox is in {ours}: one commit cannot cover both. "
                "Give the app outbox=engine with the engine of your transaction"
            )
        values = [{"id": row.id, "row": msgspec.msgpack.encode(row), "created_at": now} for row in rows]
        connection.execute(insert(self._table), values)

    def holds(self, run_id: str) -> bool:
        """Return True if a committed run has not been handed over yet."""
        self._make()
        with self.engine.connect() as connection:
            return connection.execute(select(self._table.c.id).where(self._table.c.id == run_id)).first() is not None

    def read(self, *, ids: Sequence[str] | None = None, until: int = 0) -> list[tuple[str, bytes]]:
        """Return a batch of packed runs: these, or those that were written until then."""
        self._make()
        table = self._table
        condition = table.c.created_at <= until if ids is None else table.c.id.in_(ids)
        wanted = select(table.c.id, table.c.row).where(condition).order_by(table.c.created_at)
        with self.engine.connect() as connection:
            return [(run_id, row) for run_id, row in connection.execute(wanted.limit(BATCH_RUNS))]

    def delete(self, ids: Sequence[str]) -> None:
        """Delete runs that the store has."""
        with self.engine.begin() as connection:
            connection.execute(delete(self._table).where(self._table.c.id.in_(ids)))

    def _make(self) -> None:
        """Create the table, once, in a separate transaction."""
        with self._making:
            if not self._made:
                self._table.metadata.create_all(self.engine)
                self._made = True
