"""The outbox in a Django database: runs for a store elsewhere, written in the transaction that enqueues them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from django.apps import apps
from django.db import connections

from mainspring.errors import ConfigurationError, TransactionOpen
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.records.rows import RunRow
from mainspring.jobstores.sqlalchemy.joining.outbox import BATCH_RUNS, RunOutbox

__all__ = ["DjangoOutbox"]

LABELS: Final = ("mainspring", "django_q")
"""The labels of the two apps; a project has one of them."""


class DjangoOutbox(RunOutbox):
    """The model `OutboxRecord` on one alias."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    def _rows(self) -> Any:
        label = next(label for label in LABELS if label in apps.app_configs)
        return apps.get_model(label, "OutboxRecord").objects.using(self.alias)

    def add(self, connection: Any, rows: Sequence[RunRow], now: int) -> None:
        """Write runs in this thread's transaction."""
        if connection is not None:
            raise ConfigurationError(
                "app.within() is for SQLAlchemy; in a Django project, enqueue inside transaction.atomic()"
            )
        records = self._rows()
        made = [records.model(id=row.id, row=msgspec.msgpack.encode(row), created_at=now) for row in rows]
        records.bulk_create(made, batch_size=BATCH_RUNS)

    def holds(self, run_id: str) -> bool:
        """Return True if a committed run has not been handed over yet; raise TransactionOpen before the commit."""
        found = bool(self._rows().filter(pk=run_id).exists())
        if connections[self.alias].in_atomic_block:
            if found:
                raise TransactionOpen(run_id)
        else:
            connections[self.alias].close_if_unusable_or_obsolete()
        return found

    def relay(self, store: JobStore, now: int) -> int:
        """Hand over the runs that have waited too long; return their number."""
        # Django's request signals do not reach a worker's threads.
        connections[self.alias].close_if_unusable_or_obsolete()
        try:
            return super().relay(store, now)
        finally:
            connections[self.alias].close_if_unusable_or_obsolete()

    def read(self, *, ids: Sequence[str] | None = None, until: int = 0) -> list[tuple[str, bytes]]:
        """Return a batch of packed runs: those with these ids, or those written up to `until`."""
        wanted = {"created_at__lte": until} if ids is None else {"pk__in": list(ids)}
        found = self._rows().filter(**wanted).order_by("created_at").values_list("id", "row")
        return [(run_id, bytes(row)) for run_id, row in found[:BATCH_RUNS]]

    def delete(self, ids: Sequence[str]) -> None:
        """Delete runs that the store has received."""
        self._rows().filter(pk__in=list(ids)).delete()
