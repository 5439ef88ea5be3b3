"""Where a database's connections come from: SQLAlchemy's pool, or another source such as Django."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final

from sqlalchemy.engine import Dialect, Engine

from mainspring.core.redaction import without_password

__all__ = ["Connections", "PooledConnections"]

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


class PooledConnections(Connections):
    """The pool of a SQLAlchemy engine; `own` means that only this store uses it."""

    def __init__(self, engine: Engine, *, own: bool = True) -> None:
        self.engine, self.own, self._closed = engine, own, False
        self.dialect, url = engine.dialect, engine.url
        self.where = without_password(url.render_as_string(hide_password=True))
        self.secrets = tuple(str(secret) for secret in (url.password, url.query.get("password")) if secret)

    def take(self) -> Any:
        # An interrupt may drop a connection anywhere, even in the middle of a rollback, and then the pool gets it back.
        # A transaction that is open on it would swallow what others write. So it is marked until it is given back.
        while _AT_WORK in (fairy := self.engine.raw_connection()).info:
            fairy.invalidate()
        fairy.info[_AT_WORK] = True
        return fairy

    def give_back(self, connection: Any) -> None:
        connection.info.pop(_AT_WORK, None)
        connection.close()
        if self._closed:
            self.close()

    def discard(self, connection: Any) -> None:
        if connection.is_valid:
            connection.invalidate()

    def separate(self) -> Any:
        fairy = self.take()
        connection = fairy.driver_connection
        fairy.detach()
        return connection

    def close(self) -> None:
        # Not `engine.dispose()`: a connection that another thread uses now would go back to a pool that nobody closes.
        if self.own:
            self._closed = True
            self.engine.pool.dispose()

    def leave_to_parent(self) -> None:
        _inherited.append(self.engine.pool)
        self.engine.dispose(close=False)
