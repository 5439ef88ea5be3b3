"""Database servers: pooled connections, transactions that are repeated when they collide, errors by what they mean."""

from __future__ import annotations

import random
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from mainspring.errors import ConfigurationError, OutcomeUnknown
from mainspring.interrupts import sheltered
from mainspring.jobstores.sqlalchemy.database import Database, Tx
from mainspring.jobstores.sqlalchemy.waking import readable

__all__ = ["Again", "ServerDatabase"]

T = TypeVar("T")

AT_ONCE: Final = 1.0
REPLACED: Final = 16
"""Dead connections that one call takes from the pool, at most, before it gives up."""
REPEATS: Final = 8
"""How often a transaction is begun again when it collided with another."""


class Again(Exception):
    """The transaction collided with another and changed nothing: begin it again."""


class ServerDatabase(Database):
    """A database server: pooled connections, each in autocommit mode, transactions begun and ended by hand."""

    @sheltered
    def read(self, work: Callable[[Tx], T]) -> T:
        """Do work that changes nothing, each statement by itself."""
        return self._do(lambda connection: work(self._tx(connection)), lambda connection: None)

    @sheltered
    def write(self, work: Callable[[Tx], T]) -> T:
        """Do work in one transaction, begun again if it collides with another."""

        def transact(connection: Any) -> tuple[T, bool]:
            tx = self._begin(connection)
            return work(tx), tx.stirred

        for attempt in range(REPEATS):
            try:
                result, stirred = self._do(transact, self._commit)
                break
            except Again as collision:
                if attempt == REPEATS - 1:
                    raise self.unavailable(collision.__cause__ or collision) from collision
                time.sleep(random.random() * 0.002 * 2**attempt)
        if stirred:
            self.waker.stir()
        return result

    @sheltered
    def write_once(self, statement: Callable[[Tx], T], steps: Callable[[Tx], T]) -> T:
        """Do work that is one statement, in one round trip; if it collides, take the steps."""
        fairy = self._living()
        connection = fairy.driver_connection
        tx = self._tx(connection)
        try:
            result = statement(tx)
        except BaseException as error:
            lost = self._is_lost(error, connection)
            if lost or not isinstance(error, Exception):
                fairy.invalidate()
            else:
                fairy.close()
            # The statement commits itself: it may have been written when its reply was lost.
            translated = self.unavailable(error, OutcomeUnknown) if lost else self._translated(error)
            if isinstance(translated, Again):
                return self.write(steps)
            raise translated from error
        fairy.close()
        if tx.stirred:
            self.waker.stir()
        return result

    def _living(self) -> Any:
        """Take a connection from the pool that has not been closed by the server."""
        for _ in range(REPLACED):
            fairy = self._checkout()
            # A server that is asked nothing says nothing, unless it hangs up.
            fileno = self._fileno(fairy.driver_connection)
            if fileno is not None and not readable([fileno], 0):
                return fairy
            fairy.invalidate()
        return self._checkout()

    def _do(self, work: Callable[[Any], T], commit: Callable[[Any], None]) -> T:
        """Work on a pooled connection; those that died in the pool are replaced before anybody hears of it."""
        for attempt in range(REPLACED + 1):
            fairy = self._checkout()
            connection = fairy.driver_connection
            began = time.monotonic()
            try:
                result = work(connection)
            except BaseException as error:
                lost = self._is_lost(error, connection)
                self._undo(fairy, lost or not isinstance(error, Exception))
                # A dead connection shows it at once; a server that took long to fail would only take as long again.
                # One by one: disposing of the pool would leave those that others have out to be closed by nobody.
                if lost and attempt < REPLACED and time.monotonic() - began < AT_ONCE:
                    continue
                raise self._translated(error) from error
            try:
                commit(connection)
            except BaseException as error:
                fairy.invalidate()
                translated = self._translated(error)
                if isinstance(error, self._driver_error) and not isinstance(translated, Again):
                    translated = self.unavailable(error, OutcomeUnknown)
                raise translated from error
            fairy.close()
            return result
        raise AssertionError("unreachable")

    def _checkout(self) -> Any:
        fairy: Any = None
        try:
            fairy = self.engine.raw_connection()
            self._set_autocommit(fairy.driver_connection)
        except (SQLAlchemyError, self._driver_error, OSError) as error:
            if fairy is not None:
                fairy.invalidate()
            raise self.unavailable(error) from error
        except TypeError as error:  # a driver's, for an option that it does not know
            raise ConfigurationError(f"an option in the URL is wrong: {self.unavailable(error)}") from error
        return fairy

    def _undo(self, fairy: Any, discard: bool) -> None:
        if discard:
            fairy.invalidate()
            return
        try:
            self._rollback(fairy.driver_connection)
            fairy.close()
        except Exception:
            fairy.invalidate()

    def _translated(self, error: BaseException) -> BaseException:
        if not isinstance(error, self._driver_error):
            return error
        if self._collided(error):
            again = Again()
            again.__cause__ = error
            return again
        if self._is_value(error):
            return ValueError(f"the database cannot keep a value that it was given: {error}")
        return self.unavailable(error)

    def _is_value(self, error: BaseException) -> bool:
        """Tell whether a statement would fail the same way again, for a value that it was given."""
        return any(kind.__name__ == "DataError" for kind in type(error).__mro__)

    def close(self) -> None:
        """Close all connections."""
        self.waker.close()
        if self.own:
            self.engine.dispose()

    def _is_lost(self, error: BaseException, connection: Any) -> bool:
        return isinstance(error, self._driver_error) and bool(
            self.engine.dialect.is_disconnect(error, connection, None)  # type: ignore[arg-type]
        )

    @property
    @abstractmethod
    def _driver_error(self) -> type[Exception]:
        """The base of the driver's errors."""

    @abstractmethod
    def _tx(self, connection: Any) -> Tx:
        """Return a transaction that is not begun: each statement stands alone."""

    @abstractmethod
    def _begin(self, connection: Any) -> Tx:
        """Begin a transaction."""

    @abstractmethod
    def _commit(self, connection: Any) -> None:
        """Commit it."""

    @abstractmethod
    def _rollback(self, connection: Any) -> None:
        """Undo it."""

    @abstractmethod
    def _set_autocommit(self, connection: Any) -> None:
        """Make sure that a pooled connection begins no transactions of its own."""

    @abstractmethod
    def _fileno(self, connection: Any) -> int | None:
        """Return the descriptor of a connection's socket, None if this side has closed it."""

    @abstractmethod
    def _collided(self, error: BaseException) -> bool:
        """Tell whether a transaction failed only because another was in its way."""
