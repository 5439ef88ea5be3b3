"""The base of all dialects on Django's connections: it joins the caller's transaction if there is one."""

from __future__ import annotations

import random
import secrets
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from django.db import Error, transaction
from sqlalchemy import MetaData, Table
from sqlalchemy.engine import Dialect

from mainspring.django.store.connections import DjangoConnections, is_own_thread
from mainspring.errors import ConfigurationError
from mainspring.interrupts import sheltered
from mainspring.jobstores.base import RUNS_STEP
from mainspring.jobstores.sqlalchemy import meta
from mainspring.jobstores.sqlalchemy.database import StoreTx
from mainspring.jobstores.sqlalchemy.server import COLLISION_REPEATS, CollisionError, ServerDatabase

__all__ = ["AtomicTx", "DjangoDatabase"]

T = TypeVar("T")


class AtomicTx(StoreTx):
    """Statements inside the caller's transaction. `begin` sets a savepoint, which a single statement does not need."""

    begun = False
    may_fail = False
    savepoints: ExitStack

    def begin(self) -> None:
        self.begun = True
        connections: DjangoConnections = self.database.connections  # type: ignore[assignment]
        self.savepoints.enter_context(transaction.atomic(using=connections.alias))


class DjangoDatabase(ServerDatabase):
    """A database on Django's connection of each thread; inherit from it before a dialect's class.

    Outside a caller's transaction, a step begins and ends its own, as on any server. Inside one, the step becomes part
    of it: several statements run behind a savepoint, and are repeated after a collision.
    """

    connections: DjangoConnections

    def __init__(self, alias: str, tablename: str) -> None:
        super().__init__(DjangoConnections(alias, self.make_dialect()), tablename, MetaData(), None)
        self.waker.pause = self.ends.pause = 0.0  # a timer's thread would open another connection
        self._notes = threading.local()

    @staticmethod
    @abstractmethod
    def make_dialect() -> Dialect:
        """Return the SQLAlchemy dialect that describes the tables."""

    @abstractmethod
    def _atomic(self, connection: Any) -> AtomicTx:
        """Return a transaction that is part of the caller's."""

    @property
    def inside(self) -> bool:
        """Whether this thread is inside a caller's transaction."""
        return bool(self.connections.wrapper.in_atomic_block)

    # -- opening -----------------------------------------------------------------------------------------------

    @sheltered
    def open(self) -> None:
        """Check the tables, which Django's migrations make; with another schema, claim and fire nothing."""
        tables = self.describe()
        try:
            # Inside a transaction, use a savepoint: reading a missing table would end the transaction.
            altered, clock = (self.write if self.inside else self.read)(self._look_at_meta)
            if altered:
                self.write(meta.mend)
            self._trusted.begin(clock)
        except Exception:
            wrapper = self.connections.wrapper
            if not wrapper.needs_rollback and tables.meta.name not in wrapper.introspection.table_names():
                raise ConfigurationError(
                    f"{self.connections.where} has no table {tables.meta.name!r}; run: manage.py migrate"
                ) from None
            raise

    def _look_at_meta(self, tx: StoreTx) -> tuple[bool, int | None]:
        self.look_at_schema(tx)
        return self.other_schema is None and bool(meta.altered(tx)), meta.number(tx, "clock")

    def _locked(self, work: Callable[[StoreTx], T]) -> T:
        raise NotImplementedError("Django's migrations make the tables")

    def _columns(self, tx: StoreTx, table: Table) -> set[str]:
        raise NotImplementedError("Django's migrations make the tables")

    def versions(self, count: int) -> list[int]:
        """Return random numbers: a counter needs a separate transaction, which the caller's connection cannot give."""
        return [secrets.randbits(62) or 1 for _ in range(count)]

    # -- work --------------------------------------------------------------------------------------------------

    @sheltered
    def read(self, work: Callable[[StoreTx], T]) -> T:
        return self._join(work, begin=False) if self.inside else super().read(work)

    @sheltered
    def write(self, work: Callable[[StoreTx], T]) -> T:
        return self._join(work, begin=True) if self.inside else super().write(work)

    @sheltered
    def at_once(self, work: Callable[[StoreTx], T]) -> T:
        return self._join(work, begin=False) if self.inside else super().at_once(work)

    def _join(self, work: Callable[[StoreTx], T], *, begin: bool) -> T:
        """Work inside the caller's transaction; repeat it after a collision if its savepoint could be rolled back."""
        wrapper = self.connections.wrapper
        wrapper.validate_no_broken_transaction()
        for attempt in range(COLLISION_REPEATS):
            self.connections.take()
            tx = self._atomic(wrapper.connection)
            try:
                with ExitStack() as tx.savepoints:
                    if begin or attempt:
                        tx.begin()
                    result = work(tx)
                break
            except Exception as error:
                cause = (error.__cause__ or error) if isinstance(error, Error) else error
                if isinstance(cause, self._driver_error) and not tx.begun:
                    # As the ORM does: the failed statement may have ended the transaction.
                    transaction.set_rollback(True, using=self.connections.alias)
                translated = self._translated(cause)
                if not isinstance(translated, CollisionError):
                    raise translated from cause if translated is not cause else None
                if wrapper.needs_rollback or attempt == COLLISION_REPEATS - 1:
                    raise self.unavailable(cause) from cause
                time.sleep(random.random() * 0.002 * 2**attempt)
        if tx.ended:
            self._notes.ended = True
        if tx.rescheduled:
            self._notes.rescheduled = True
        if tx.stirred or tx.rescheduled or tx.ended:
            self._notes.unseen = True
            self._await_commit()
        return result

    def show_own_writes(self) -> None:
        """Let a wait on this thread see the writes of its open transaction; other threads see them at its commit."""
        if self._notes.__dict__.pop("unseen", False) and self.inside:
            self.waker.move()
            self.ends.move()

    def _await_commit(self) -> None:
        """Wake sleepers after the commit; one wake-up covers everything before it."""
        wrapper = self.connections.wrapper
        savepoints = set(wrapper.savepoint_ids)
        if any(entry[1] == self.committed and entry[0] == savepoints for entry in reversed(wrapper.run_on_commit)):
            return
        transaction.on_commit(self.committed, using=self.connections.alias, robust=True)

    def committed(self) -> None:
        """Wake sleepers for the changes that the caller has committed."""
        self._added().clear()
        self.waker.stir(1 if self._notes.__dict__.pop("rescheduled", False) else RUNS_STEP)
        if self._notes.__dict__.pop("ended", False):
            self.ends.stir()

    # -- sessions ----------------------------------------------------------------------------------------------

    def _set_autocommit(self, connection: Any) -> None:
        """Prepare the connection of a node's thread; Django's are in autocommit mode outside transactions."""
        wrapper = self.connections.wrapper
        if (
            is_own_thread()
            and getattr(wrapper, "mainspring_prepared", None) is not connection
            and not wrapper.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS")  # a pooler is in between
        ):
            self._prepare_session(connection)
            wrapper.mainspring_prepared = connection

    def _prepare_session(self, connection: Any) -> None:
        """Set time-outs for a connection that only a node's thread uses."""

    # -- what the caller's transaction holds -------------------------------------------------------------------

    @property
    def shut(self) -> bool:
        """Whether this thread's open transaction keeps all others from writing."""
        return False

    def note_added(self, run_ids: Sequence[str]) -> None:
        """Remember runs that the open transaction added or sent back: no node executes them before it commits."""
        self._await_commit()
        self._added().update(run_ids)

    def added_inside(self) -> set[str]:
        """Return the runs that this thread's open transaction added or sent back."""
        if not self.inside:  # it was rolled back
            self._added().clear()
        return self._added()

    def _added(self) -> set[str]:
        found: set[str] = self._notes.__dict__.setdefault("added", set())
        return found
