"""Hand out the connection that Django keeps for this thread, in place of a pool."""

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
    """Mark this thread as one of a node's: its connection serves nobody else, and is closed at the end."""
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
    """This thread's connection, which no other thread uses; `close` leaves it open, since it is Django's."""

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper
        self.driver_connection = wrapper.connection

    def close(self) -> None:
        """Leave it to Django."""

    def invalidate(self) -> None:
        """Close it; Django opens a new one when it is needed."""
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
        """Return this thread's connection; raise the driver's error if it cannot be had."""
        wrapper = self.wrapper
        # No signal of a request visits a node's own threads. With a CONN_MAX_AGE of 0 they keep theirs: otherwise each
        # step would connect anew.
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
