"""Where a database's connections come from: SQLAlchemy's pool, or another source such as Django."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from typing import Any, Final

from sqlalchemy.engine import Dialect, Engine
from sqlalchemy.pool import QueuePool

from mainspring.core.redaction import without_password

__all__ = ["Connections", "PooledConnections"]

MOST_KEPT: Final = 4
"""Keep at most this many connections beside the pool."""
IDLE_SECONDS: Final = 1.0
"""A kept connection that nobody has used for this long goes through the pool before it is used again."""
KEPT_SECONDS: Final = 30.0
"""A connection goes back to the pool after this long, where it may be found too old."""

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
        """Take a connection: `driver_connection` is the driver's; `close` gives it back, `invalidate` discards it."""

    @abstractmethod
    def separate(self) -> Any:
        """Return a driver's connection that nobody else uses; the caller closes it."""

    def close(self) -> None:  # noqa: B027
        """Close all connections."""

    def leave_to_parent(self) -> None:  # noqa: B027
        """Give up the connections after a fork: they are the parent's."""


class _SpareConnection:
    """A connection out of the pool that goes from caller to caller without going through the pool."""

    __slots__ = ("_connections", "driver_connection", "fairy", "taken_at", "used_at")

    def __init__(self, connections: PooledConnections, fairy: Any) -> None:
        self._connections, self.fairy = connections, fairy
        self.driver_connection = fairy.driver_connection
        self.taken_at = self.used_at = time.monotonic()

    def close(self) -> None:
        """Keep it for the next caller, or give it back to the pool."""
        self._connections.keep(self)

    def invalidate(self) -> None:
        """Discard it."""
        self.fairy.invalidate()


class PooledConnections(Connections):
    """The pool of a SQLAlchemy engine; `own` means that only this store uses it.

    Of a pool of its own it keeps a few connections at hand, because going through the pool takes longer than to send a
    statement. They are the pool's as before: whoever waits for a connection gets the next one that is given back.
    """

    def __init__(self, engine: Engine, *, own: bool = True) -> None:
        self.engine, self.own = engine, own
        self.dialect, url = engine.dialect, engine.url
        self.where = without_password(url.render_as_string(hide_password=True))
        self.secrets = tuple(str(secret) for secret in (url.password, url.query.get("password")) if secret)
        self._most = MOST_KEPT if own and type(engine.pool) is QueuePool else 0
        self._kept: list[_SpareConnection] = []
        self._asking = 0  # how many threads wait for the pool
        self._lock = threading.Lock()

    def take(self) -> Any:
        if not self._most:
            return self.engine.raw_connection()
        with self._lock:
            kept = self._kept.pop() if self._kept else None
            if kept is not None and time.monotonic() - kept.used_at < IDLE_SECONDS:
                return kept
            self._asking += 1
        try:
            if kept is not None:
                kept.fairy.close()
            return _SpareConnection(self, self.engine.raw_connection())
        finally:
            with self._lock:
                self._asking -= 1

    def keep(self, kept: _SpareConnection) -> None:
        """Keep a connection for the next caller; give it back to the pool if a thread waits for that."""
        kept.used_at = time.monotonic()
        with self._lock:
            if not self._asking and len(self._kept) < self._most and kept.used_at - kept.taken_at < KEPT_SECONDS:
                self._kept.append(kept)
                return
        kept.fairy.close()

    def separate(self) -> Any:
        with self._lock:
            self._asking += 1
        try:
            self._give_back()  # the pool may be small
            fairy = self.engine.raw_connection()
        finally:
            with self._lock:
                self._asking -= 1
        connection = fairy.driver_connection
        fairy.detach()
        return connection

    def _give_back(self) -> None:
        with self._lock:
            kept, self._kept = self._kept, []
        for each in kept:
            each.fairy.close()

    def close(self) -> None:
        if self.own:
            self._most = 0
            self._give_back()
            self.engine.dispose()

    def leave_to_parent(self) -> None:
        _inherited.extend((self.engine.pool, self._kept))
        self.engine.dispose(close=False)
