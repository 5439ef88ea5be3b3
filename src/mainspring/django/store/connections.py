"""Provide Django's connection of the current thread, in place of a pool."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import Error, connections
from sqlalchemy.engine import Dialect

from mainspring.jobstores.sqlalchemy.connections import Connections

__all__ = ["BorrowedConnection", "DjangoConnections", "is_own_thread", "own_thread"]


_threads = threading.local()


@contextmanager
def own_thread(alias: str) -> Iterator[None]:
    """Mark this thread as a node's: nothing else uses its connection, which is closed at the end."""
    _threads.own = True
    try:
        yield
    finally:
        _threads.own = False
        connections[alias].close()


def is_own_thread() -> bool:
    """Return True if this thread belongs to a node."""
    return getattr(_threads, "own", False)


class BorrowedConnection:
    """This thread's connection, which no other thread uses. `close` leaves it open, since it belongs to Django."""

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper
        self.driver_connection = wrapper.connection

    def close(self) -> None:
        """Do nothing: Django closes the connection."""

    def invalidate(self) -> None:
        """Close the connection; Django opens a new one on demand."""
        self._wrapper.close()


class DjangoConnections(Connections):
    """The connections of one alias in `settings.DATABASES`."""

    def __init__(self, alias: str, dialect: Dialect) -> None:
        self.alias, self.dialect = alias, dialect
        self.where = f"DATABASES[{alias!r}]"
        password = connections[alias].settings_dict.get("PASSWORD")
        self.secrets = (str(password),) if password else ()

    @property
    def wrapper(self) -> Any:
        """Django's wrapper of this thread's connection."""
        return connections[self.alias]

    def take(self) -> BorrowedConnection:
        """Return this thread's connection; raise the driver's error if it cannot be opened."""
        wrapper = self.wrapper
        # Django's request signals do not reach a node's threads, so check the age here. With a CONN_MAX_AGE of 0, keep
        # the connection: otherwise each step would reconnect.
        if is_own_thread() and wrapper.settings_dict["CONN_MAX_AGE"] != 0:
            wrapper.close_if_unusable_or_obsolete()
        try:
            wrapper.ensure_connection()
        except Error as error:
            raise error.__cause__ or error from None
        return BorrowedConnection(wrapper)

    def separate(self) -> Any:
        wrapper = self.wrapper
        return wrapper.Database.connect(**wrapper.get_connection_params())
