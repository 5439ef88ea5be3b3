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


class _PooledConnection:
    """One caller's handle to a connection from the pool; the connection can pass to the next caller under a new one."""

    __slots__ = ("driver_connection", "fairy", "info", "taken_at", "used_at")

    def __init__(self, fairy: Any, taken_at: float, used_at: float) -> None:
        self.fairy = fairy
        self.driver_connection, self.info = fairy.driver_connection, fairy.info
        self.taken_at, self.used_at = taken_at, used_at

    @property
    def is_valid(self) -> bool:
        """True while this handle holds a connection that was not discarded."""
        return self.fairy is not None and bool(self.fairy.is_valid)

    def invalidate(self) -> None:
        """Discard the connection, unless it was given back."""
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
        self._kept: list[_PooledConnection] = []
        self._asking = 0  # how many threads wait for the pool
        self._lock = free_in_children(threading.Lock())

    def take(self) -> _PooledConnection:
        with self._lock:
            kept = self._kept.pop() if self._kept else None
            asks = kept is None or time.monotonic() - kept.used_at >= IDLE_SECONDS
            self._asking += asks
        try:
            if kept is None or asks:
                if kept is not None:
                    kept.fairy.close()
                now = time.monotonic()
                kept = _PooledConnection(self._pooled(), now, now)
        finally:
            if asks:
                with self._lock:
                    self._asking -= 1
        # An interrupt may drop a connection anywhere, even in the middle of a rollback, and then the pool gets it back.
        # If a transaction is still open on it, the next user's writes would disappear in that transaction. So mark the
        # connection until `give_back`.
        kept.info[_AT_WORK] = True
        return kept

    def _pooled(self) -> Any:
        """Take a connection from the pool, and discard those on which a step has not ended."""
        while _AT_WORK in (fairy := self.engine.raw_connection()).info:
            fairy.invalidate()
        return fairy

    def give_back(self, connection: _PooledConnection) -> None:
        """Keep the connection for the next caller; return it to the pool if a thread waits there or enough are kept."""
        connection.info.pop(_AT_WORK, None)
        # The next caller gets a new handle, so that this one can do no more harm.
        fairy, connection.fairy, now = connection.fairy, None, time.monotonic()
        with self._lock:
            if not self._asking and len(self._kept) < self._most and now - connection.taken_at < KEPT_SECONDS:
                self._kept.append(_PooledConnection(fairy, connection.taken_at, now))
                return
        fairy.close()
        if self._closed:
            self.close()

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
