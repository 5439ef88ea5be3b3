"""Work on a database server: take pooled connections, repeat transactions that collide, and translate errors."""

from __future__ import annotations

import random
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from mainspring.errors import ConfigurationError, OutcomeUnknown
from mainspring.interrupts import sheltered
from mainspring.jobstores.base import RUNS_STEP
from mainspring.jobstores.sqlalchemy.database import Database, StoreTx
from mainspring.jobstores.sqlalchemy.waking import readable

__all__ = ["IDLE_TRANSACTION_SECONDS", "CollisionError", "ServerDatabase"]

T = TypeVar("T")

IDLE_TRANSACTION_SECONDS: Final = 2
"""The server ends a transaction after this many idle seconds, and frees its locks.

The program may be frozen or cut off. Others wait longer than this for a lock, so they get it before they give up.
"""
REPLACE_WITHIN_SECONDS: Final = 1.0
DEAD_CONNECTIONS_PER_CALL: Final = 16
"""A call gives up after this many dead connections from the pool."""
COLLISION_REPEATS: Final = 8
"""Try a transaction at most this many times if it collides with others."""


class CollisionError(Exception):
    """A transaction collided with another and changed nothing; it can be repeated."""


class _DeadConnection(Exception):
    """A pooled connection was dead, and the work changed nothing."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class ServerDatabase(Database):
    """A database server: pooled connections in autocommit mode; the code begins and ends transactions itself."""

    @sheltered
    def read(self, work: Callable[[StoreTx], T]) -> T:
        """Do read-only work, each statement by itself."""
        return self._do(work, begin=False, reads=True)

    @sheltered
    def write(self, work: Callable[[StoreTx], T]) -> T:
        """Do work in one transaction; repeat it if it collides with another."""
        return self._repeat(work, begin=True)

    @sheltered
    def at_once(self, work: Callable[[StoreTx], T]) -> T:
        """Do work that begins a transaction if it needs one; if it collides, repeat it all in one transaction."""
        return self._repeat(work, begin=False)

    def _repeat(self, work: Callable[[StoreTx], T], *, begin: bool) -> T:
        for attempt in range(COLLISION_REPEATS):
            try:
                return self._do(work, begin=begin or attempt > 0)
            except CollisionError as collision:
                if attempt == COLLISION_REPEATS - 1:
                    raise self.unavailable(collision.__cause__ or collision) from collision
                time.sleep(random.random() * 0.002 * 2**attempt)
        raise AssertionError("unreachable")

    def _living(self) -> Any:
        """Take a connection from the pool that the server has not closed."""
        for _ in range(DEAD_CONNECTIONS_PER_CALL):
            fairy = self._checkout()
            # An idle connection becomes readable only if the server has closed it.
            fileno = self._fileno(fairy.driver_connection)
            if fileno is not None and not readable([fileno], 0):
                return fairy
            fairy.invalidate()
        return self._checkout()

    def _do(self, work: Callable[[StoreTx], T], *, begin: bool, reads: bool = False) -> T:
        """Do work on a pooled connection; take another one if it died in the pool."""
        for attempt in range(DEAD_CONNECTIONS_PER_CALL + 1):
            fairy = self._checkout() if begin or reads else self._living()
            tx = self._tx(fairy.driver_connection)
            began = time.monotonic()
            try:
                result = self._step(fairy, tx, work, begin=begin, reads=reads)
            except _DeadConnection as dead:
                # A dead connection fails at once; after a slow failure, another try would be as slow.
                # Drop dead connections one by one: disposing of the pool would leak those that other threads use.
                if attempt < DEAD_CONNECTIONS_PER_CALL and time.monotonic() - began < REPLACE_WITHIN_SECONDS:
                    continue
                raise self._translated(dead.error) from dead.error
            except Exception:
                raise
            except BaseException:  # an interrupt, perhaps during the commit
                self.connections.discard(fairy)
                raise
            if tx.stirred or tx.rescheduled:
                self.waker.stir(1 if tx.rescheduled else RUNS_STEP)
            if tx.awaited:
                self.ends.stir()
            elif tx.ended:
                self.ends.move()
            return result
        raise AssertionError("unreachable")

    def _step(self, fairy: Any, tx: StoreTx, work: Callable[[StoreTx], T], *, begin: bool, reads: bool) -> T:
        """Do work, commit it and give the connection back; after an error, roll back."""
        try:
            if begin:
                tx.begin()
            result = work(tx)
        except Exception as error:
            lost = self._is_lost(error, fairy.driver_connection)
            self._undo(fairy, lost, tx.begun)
            if lost and not (tx.begun or begin or reads):
                # The statement commits by itself: the write may have happened although the reply was lost.
                raise self.unavailable(error, OutcomeUnknown) from error
            if lost:
                raise _DeadConnection(error) from error
            translated = self._translated(error)
            raise translated from error if translated is not error else None
        if tx.begun:
            self._end(fairy)
        self.connections.give_back(fairy)
        return result

    def _end(self, fairy: Any) -> None:
        try:
            self._commit(fairy.driver_connection)
        except Exception as error:
            fairy.invalidate()
            translated = self._translated(error)
            if isinstance(error, self._driver_error) and not isinstance(translated, CollisionError):
                translated = self.unavailable(error, OutcomeUnknown)
            raise translated from error

    def _checkout(self) -> Any:
        fairy: Any = None
        try:
            fairy = self.connections.take()
            self._set_autocommit(fairy.driver_connection)
        except (SQLAlchemyError, self._driver_error, OSError) as error:
            if fairy is not None:
                fairy.invalidate()
            raise self.unavailable(error) from error
        except TypeError as error:  # the driver does not know an option
            raise ConfigurationError(f"an option in the URL is wrong: {self.unavailable(error)}") from error
        return fairy

    def _undo(self, fairy: Any, discard: bool, begun: bool) -> None:
        if discard:
            fairy.invalidate()
            return
        try:
            if begun:
                self._rollback(fairy.driver_connection)
            self.connections.give_back(fairy)
        except Exception:
            fairy.invalidate()

    def _translated(self, error: BaseException) -> BaseException:
        if not isinstance(error, self._driver_error):
            return error
        if self._collided(error):
            again = CollisionError()
            again.__cause__ = error
            return again
        if self._is_value(error):
            return ValueError(f"the database cannot keep a value that it was given: {error}")
        return self.unavailable(error)

    def _is_value(self, error: BaseException) -> bool:
        """Return True if a statement would fail again because of one of its values."""
        return any(kind.__name__ == "DataError" for kind in type(error).__mro__)

    def close(self) -> None:
        """Close all connections."""
        self.waker.close()
        self.ends.close()
        self.connections.close()

    def _is_lost(self, error: BaseException, connection: Any) -> bool:
        return isinstance(error, self._driver_error) and bool(
            self.connections.dialect.is_disconnect(error, connection, None)  # type: ignore[arg-type]
        )

    @property
    @abstractmethod
    def _driver_error(self) -> type[Exception]:
        """The base of the driver's errors."""

    @abstractmethod
    def _tx(self, connection: Any) -> StoreTx:
        """Return a transaction that has not begun: each statement stands alone."""

    @abstractmethod
    def _commit(self, connection: Any) -> None:
        """Commit a transaction."""

    @abstractmethod
    def _rollback(self, connection: Any) -> None:
        """Undo a transaction."""

    @abstractmethod
    def _set_autocommit(self, connection: Any) -> None:
        """Make sure that a pooled connection does not begin transactions by itself."""

    @abstractmethod
    def _fileno(self, connection: Any) -> int | None:
        """Return the descriptor of a connection's socket, None if this side has closed it."""

    @abstractmethod
    def _collided(self, error: BaseException) -> bool:
        """Return True if a transaction failed only because it collided with another."""
