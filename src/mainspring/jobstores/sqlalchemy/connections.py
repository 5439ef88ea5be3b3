"""The source of a database's connections: SQLAlchemy's pool, or another source such as Django."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from typing import Any, Final

from sqlalchemy.engine import Dialect, Engine
from sqlalchemy.pool import QueuePool

from mainspring.core.showing.redaction import without_password
from mainspring.locks import free_in_children

__all__ = ["Connections", "PooledConnections"]

MOST_KEPT: Final = 4
"""Keep at most this many connections beside the pool."""
IDLE_SECONDS: Final = 1.0
"""Return a kept connection to the pool, instead of using it, if it was idle for this many seconds."""
KEPT_SECONDS: Final = 30.0
"""Return a connection to the pool after this many seconds, so that the pool can replace it if it is too old."""

_AT_WORK: Final = "mainspring: a step has begun and not ended"
_inherited: list[Any] = []  # copies from a fork: closing them here would harm the parent's connections


class Connections(ABC):
    """A source of connections to one database."""

    dialect: Dialect
    """The SQLAlchemy dialect, which renders the DDL and recognizes the errors of a lost connection."""
    where: str
    """The database's address without its password, for messages."""
    secrets: tuple[str, ...] = ()
    """Texts that no message may show."""

    @abstractmethod
    def take(self) -> Any:
        """Take a connection; its `driver_connection` is the driver's, and its `invalidate` discards it."""

    def give_back(self, connection: Any) -> None:
        """Give back a connection on which every step has ended and every reply was read."""
        connection.close()

    def discard(self, connection: Any) -> None:
        """Close a connection after an interrupt; the interrupt may have come after `give_back`."""
        connection.invalidate()

    @abstractmethod
    def separate(self) -> Any:
        """Return a driver's connection outside of the pool, for the caller alone; the caller closes it."""

    def close(self) -> None:  # noqa: B027
        """Close all connections."""

    def leave_to_parent(self) -> None:  # noqa: B027
        """Give up the connections after a fork: they are the parent's."""


class _SpareConnection:
    """One caller's handle to a pooled connection that can pass to the next caller without going through the pool."""

    __slots__ = ("_connections", "driver_connection", "fairy", "info", "taken_at", "used_at")

    def __init__(self, connections: PooledConnections, fairy: Any, taken_at: float) -> None:
        self._connections, self.fairy = connections, fairy
        self.driver_connection, self.info = fairy.driver_connection, fairy.info
        self.taken_at = self.used_at = taken_at

    @property
    def is_valid(self) -> bool:
        """True while this handle holds a connection that was not discarded."""
        return self.fairy is not None and bool(self.fairy.is_valid)

    def close(self) -> None:
        """Keep the connection for the next caller, or return it to the pool."""
        fairy, self.fairy = self.fairy, None  # the next caller gets a new handle: this one can no longer do harm
        self._connections.keep(fairy, self.taken_at)

    def invalidate(self) -> None:
        """Discard the connection, unless this handle was closed."""
        if self.fairy is not None:
            self.fairy.invalidate()


class PooledConnections(Connections):
    """The pool of a SQLAlchemy engine; `own` means that only this store uses it.

    With `own`, it keeps a few connections at hand, because going through the pool takes longer than sending a
    statement. They still belong to the pool: a thread that waits for a connection gets the next one that is given back.
    """

    def __init__(self, engine: Engine, *, own: bool = True) -> None:
        self.engine, self.own, self._closed = engine, own, False
        self.dialect, url = engine.dialect, engine.url
        self.where = without_password(url.render_as_string(hide_password=True))
        self.secrets = tuple(str(secret) for secret in (url.password, url.query.get("password")) if secret)
        self._most = MOST_KEPT if own and type(engine.pool) is QueuePool else 0
        self._kept: list[_SpareConnection] = []
        self._asking = 0  # how many threads wait for the pool
        self._lock = free_in_children(threading.Lock())

    def take(self) -> Any:
        # An interrupt may drop a connection anywhere, even in the middle of a rollback, and then the pool gets it back.
        # If a transaction is still open on it, the next user's writes would disappear in that transaction. So mark the
        # connection until `give_back`.
        connection = self._take_spare() if self._most else self._pooled()
        connection.info[_AT_WORK] = True
        return connection

    def _take_spare(self) -> _SpareConnection:
        with self._lock:
            kept = self._kept.pop() if self._kept else None
            if kept is not None and time.monotonic() - kept.used_at < IDLE_SECONDS:
                return kept
            self._asking += 1
        try:
            if kept is not None:
                kept.fairy.close()
            return _SpareConnection(self, self._pooled(), time.monotonic())
        finally:
            with self._lock:
                self._asking -= 1

    def _pooled(self) -> Any:
        """Take a connection from the pool, and discard those on which a step has not ended."""
        while _AT_WORK in (fairy := self.engine.raw_connection()).info:
            fairy.invalidate()
        return fairy

    def give_back(self, connection: Any) -> None:
        connection.info.pop(_AT_WORK, None)
        connection.close()
        if self._closed:
            self.close()

    def keep(self, fairy: Any, taken_at: float) -> None:
        """Keep a connection for the next caller; return it to the pool if a thread waits there or enough are kept."""
        kept = _SpareConnection(self, fairy, taken_at)
        kept.used_at = time.monotonic()
        with self._lock:
            if not self._asking and len(self._kept) < self._most and kept.used_at - taken_at < KEPT_SECONDS:
                self._kept.append(kept)
                return
        fairy.close()

    def discard(self, connection: Any) -> None:
        if connection.is_valid:
            connection.invalidate()

    def separate(self) -> Any:
        with self._lock:
            self._asking += 1
        try:
            self._empty()  # the pool may be small
            fairy = self._pooled()
        finally:
            with self._lock:
                self._asking -= 1
        connection = fairy.driver_connection
        fairy.detach()
        return connection

    def _empty(self) -> None:
        """Give the kept connections back to the pool."""
        with self._lock:
            kept, self._kept = self._kept, []
        for each in kept:
            each.fairy.close()

    def close(self) -> None:
        # Not `engine.dispose()`: a connection that another thread uses now would go back to a pool that nobody closes.
        if self.own:
            self._closed, self._most = True, 0
            self._empty()
            self.engine.pool.dispose()

    def leave_to_parent(self) -> None:
        _inherited.extend((self.engine.pool, self._kept))
        self._kept = []
        self.engine.dispose(close=False)
