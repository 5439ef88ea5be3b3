"""`DjangoStore`: the SQL store's statements on Django's connection of each thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NoReturn

from django.db import transaction

from mainspring.codec import Codec
from mainspring.core.run import UNFINISHED
from mainspring.django.store.connections import own_thread
from mainspring.django.store.database import DjangoDatabase
from mainspring.django.store.databases import make_database
from mainspring.errors import TransactionOpen
from mainspring.jobstores.base import CHANGES, Answers
from mainspring.jobstores.records.rows import RunRow, SettleRow
from mainspring.jobstores.sqlalchemy.database import Database
from mainspring.jobstores.sqlalchemy.store import SQLStore

__all__ = ["DjangoStore"]


class DjangoStore(SQLStore):
    """A store of jobs and runs in a Django database, on Django's connections.

    Inside `transaction.atomic()`, everything is part of the caller's transaction: a run exists if and only if the
    transaction commits. Django's migrations make the tables. `url` is `django://` plus an alias in DATABASES.
    """

    remote = False
    """No batch is sent from a helper thread, since that would use another connection."""

    def __init__(
        self,
        url: str = "django://default",
        tablename: str = "mainspring_jobs",
        *,
        codec: Codec | None = None,
        keep_runs: int = 100_000,
    ) -> None:
        super().__init__(codec, keep_runs)
        self.alias = url.partition("://")[2].strip("/") or "default"
        self._tablename = tablename

    def _database(self) -> Database:
        return make_database(self.alias, self._tablename)

    def _joinable(self) -> DjangoDatabase:
        database = self._open()
        assert isinstance(database, DjangoDatabase)
        return database

    def on_thread(self) -> AbstractContextManager[None]:
        return own_thread(self.alias)

    # -- the caller's transaction ------------------------------------------------------------------------------

    def _add_run_rows(self, rows: Sequence[RunRow]) -> Answers[str | None]:
        answers = super()._add_run_rows(rows)
        database = self._joinable()
        if database.inside:
            database.note_added([row.id for row in rows])
        return answers

    def _settle_rows(self, outcomes: Sequence[SettleRow]) -> Answers[bool]:
        answers = super()._settle_rows(outcomes)
        database = self._joinable()
        if database.inside:
            changed = [outcome.run for outcome, done in zip(outcomes, answers, strict=True) if done]
            database.note_added([row.id for row in changed if row.status in UNFINISHED])
        return answers

    def check_wait(self, run_ids: Sequence[str]) -> None:
        database = self._joinable()
        mine = database.added_inside().intersection(run_ids)
        if mine or database.shut:
            raise TransactionOpen(min(mine or run_ids), locked=not mine)

    def wait(self, cursor: int, timeout: float, topic: str = CHANGES) -> int:
        if isinstance(self._opened, DjangoDatabase):  # a wait does not open the store
            self._opened.show_own_writes()
        return super().wait(cursor, timeout, topic)

    def after_commit(self, work: Callable[[], object]) -> None:
        transaction.on_commit(work, using=self.alias, robust=True)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a DjangoStore uses this process's connections; give each process the URL, not the store")

    def __repr__(self) -> str:
        return f"<DjangoStore (DATABASES[{self.alias!r}])>"
