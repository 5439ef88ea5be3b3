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
"""A kept connection that nobody has used for this long goes through the pool before it is used again."""
KEPT_SECONDS: Final = 30.0
"""A connection goes back to the pool after this long, where it may be found too old."""

_AT_WORK: Final = "mainspring: a step has begun and not ended"
_inherited: list[Any] = []  # copies from a fork: closing them here would harm the parent's connections


class Connections(ABC):
    """A source of connections to one database."""

    dialect: Dialect
    """How SQLAlchemy writes the tables, and tells the errors of a lost connection from others."""
    where: str
    """The database's address without its password, for messages."""
    secrets: tuple[str, ...] = ()
    """Texts that no message may show."""

    @abstractmethod
    def take(self) -> Any:
        """Take a connection: `driver_connection` is the driver's; `invalidate` discards it."""

    def give_back(self, connection: Any) -> None:
        """Give back a connection on which every step has ended and every reply was read."""
        connection.close()

    def discard(self, connection: Any) -> None:
        """Close a connection after an interrupt, which may have come after it was given back."""
        connection.invalidate()

    @abstractmethod
    def separate(self) -> Any:
        """Return a driver's connection that nobody else uses; the caller closes it."""

    def close(self) -> None:  # noqa: B027
        """Close all connections."""

    def leave_to_parent(self) -> None:  # noqa: B027
        """Give up the connections after a fork: they are the parent's."""


class _SpareConnection:
    """A connection out of the pool, in one caller's hands; it goes on to the next without going through the pool."""

    __slots__ = ("_connections", "driver_connection", "fairy", "info", "taken_at", "used_at")

    def __init__(self, connections: PooledConnections, fairy: Any, taken_at: float) -> None:
        self._connections, self.fairy = connections, fairy
        self.driver_connection, self.info = fairy.driver_connection, fairy.info
        self.taken_at = self.used_at = taken_at

    @property
    def is_valid(self) -> bool:
        """Whether the caller still has it."""
        return self.fairy is not None and bool(self.fairy.is_valid)

    def close(self) -> None:
        """Keep it for the next caller, or give it back to the pool."""
        fairy, self.fairy = self.fairy, None  # the next caller has another handle: this one can do it no harm
        self._connections.keep(fairy, self.taken_at)

    def invalidate(self) -> None:
        """Discard it."""
        if self.fairy is not None:
            self.fairy.invalidate()


class PooledConnections(Connections):
    """The pool of a SQLAlchemy engine; `own` means that only this store uses it.

    If it owns the pool, it keeps a few connections at hand, because going through the pool takes longer than sending a
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
        # A transaction that is open on it would swallow what others write. So it is marked until it is given back.
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
        """Keep a connection for the next caller; give it back to the pool if a thread waits for that."""
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
