"""Hand runs over at the commit of a transaction that excludes the store: it is elsewhere, or on another alias."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from django.db import Error, connections, transaction

from mainspring.core.run import UNTIL_START_PREFIX
from mainspring.django.store.outbox import DjangoOutbox
from mainspring.errors import StoreUnavailable, near

if TYPE_CHECKING:
    from mainspring.django.application import DjangoApp

__all__ = ["HandingOver"]

_using: ContextVar[str | None] = ContextVar("mainspring_using", default=None)


class HandingOver:
    """The project's transactions, for runs that the store cannot write inside them."""

    def __init__(self, app: DjangoApp) -> None:
        self._app = app
        self.outbox: DjangoOutbox | None = None
        self.read_settings()

    def read_settings(self) -> None:
        """Find the outbox in the settings."""
        alias = self._app.conf.outbox
        self.outbox = None if alias is None else DjangoOutbox(alias)

    @contextmanager
    def using(self, alias: str) -> Iterator[None]:
        """Make runs enqueued in this block wait for the commit of another database."""
        if alias not in connections.databases:
            raise ValueError(f"there is no database {alias!r} in DATABASES{near(alias, connections.databases)}")
        token = _using.set(alias)
        try:
            yield
        finally:
            _using.reset(token)

    def is_open(self) -> bool:
        """Return True if a run stored now must wait for a commit."""
        return self._alias() is not None

    def covers_runs(self) -> bool:
        """Return True if a run stored now waits in the outbox, as part of the caller's transaction."""
        return self.outbox is not None and self._alias() == self.outbox.alias

    def defer(self, work: Callable[[], object], rows: Sequence[Any] = ()) -> bool:
        """Call `work` when the caller's transaction commits; return False if none is open."""
        alias, outbox = self._alias(), self.outbox
        if alias is None:
            return False
        if outbox is None or alias != outbox.alias:
            transaction.on_commit(work, using=alias)
            return True
        if any(row.unique is not None and row.unique[0] == UNTIL_START_PREFIX for row in rows):
            raise ValueError(
                "debounce= and on_conflict='replace' cannot be given inside a transaction with an outbox: only the "
                "store knows the run to be replaced"
            )
        ids = [row.id for row in rows]
        outbox.add(None, rows, self._app.now())
        transaction.on_commit(lambda: _hand_over(outbox, work, ids), using=alias)
        return True

    def _alias(self) -> str | None:
        """Return the database whose open transaction holds runs back, or None."""
        found = self._app.conf
        alias = _using.get()
        if alias is None and found.alias is None:
            alias = found.outbox or "default"
        if alias is None or alias == found.alias or not connections[alias].in_atomic_block:
            return None
        return alias


def _hand_over(outbox: DjangoOutbox, work: Callable[[], object], ids: Sequence[str]) -> None:
    """Store runs, and remove them from the outbox; if that fails, a node relays them."""
    try:
        work()
        outbox.delete(ids)
    except (StoreUnavailable, Error, OSError) as error:
        outbox.warn(len(ids), error)
