"""Write the jobs of schedule rows, and compare all rows with their jobs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from django.db import transaction

from mainspring.core.instants import SECOND
from mainspring.core.job import Job
from mainspring.django.conf import conf
from mainspring.django.schedules.jobs import PREFIX, job_id_of, make_job, pk_of

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["ComparisonChore", "by_row", "compare", "is_by_row", "project_app", "remove_jobs", "write_jobs"]

COMPARE_SECONDS: Final = 10.0

log = logging.getLogger("mainspring.django")

_by_row: ContextVar[bool] = ContextVar("mainspring_schedule_by_row", default=False)


@contextmanager
def by_row() -> Iterator[None]:
    """Mark writes to jobs as coming from their rows, so that the store does not write them back."""
    token = _by_row.set(True)
    try:
        yield
    finally:
        _by_row.reset(token)


def is_by_row() -> bool:
    """Return True inside `by_row`."""
    return _by_row.get()


def project_app() -> Any:
    """Return the project's app; its modules may import the models, which import this module."""
    from mainspring.django.application import app

    return app


def write_jobs(model: Any, pks: Sequence[Any], using: str) -> None:
    """Write the jobs of some rows: in the caller's transaction if the store is part of it, else after its commit."""
    app = project_app()
    if not pks or app.inline:
        return
    if conf().alias == using:
        _write(app, model, pks, using)
    else:
        transaction.on_commit(lambda: _write(app, model, pks, using), using=using)


def _write(app: Mainspring, model: Any, pks: Sequence[Any], using: str) -> None:
    rows = model._base_manager.using(using).in_bulk(list(pks))
    stored = _stored(app, rows)
    for pk, row in rows.items():
        _put(app, row, stored.get(job_id_of(pk)))


def _stored(app: Mainspring, pks: Iterable[Any]) -> dict[str, Job]:
    return {job.id: job for job in app.store.get_jobs([job_id_of(pk) for pk in pks]).jobs}


def _put(app: Mainspring, row: Any, stored: Job | None) -> bool:
    """Write the job of a row if it differs from the stored one; return True if it did."""
    job = make_job(app, row, stored, coalesce=conf().coalesce)
    with by_row():
        if job is None:
            if stored is not None:
                app.store.remove_jobs([stored.id])
            return stored is not None
        if stored is not None and stored.declared == job.declared and stored.at == job.at:
            return False
        app.jobs.put(job, replace=True)
    return True


def remove_jobs(pks: Sequence[Any], using: str) -> None:
    """Remove the jobs of deleted rows."""
    app = project_app()
    if not pks or app.inline:
        return

    def remove() -> None:
        with by_row():
            app.store.remove_jobs([job_id_of(pk) for pk in pks])

    if conf().alias == using:
        remove()
    else:
        transaction.on_commit(remove, using=using)


def compare(app: Mainspring, model: Any) -> int:
    """Bring all jobs in line with their rows; return the number that differed.

    A row that was written without the model, by a migration or by SQL, has no job yet, or an outdated one. Rows that
    have fired their only time are deleted, unless the fire did that.
    """
    model._base_manager.filter(schedule_type=model.ONCE, repeats__lt=0, next_run=None).exclude(task=None).delete()
    rows = {row.pk: row for row in model._base_manager.all()}
    stored = {job.id: job for job in app.store.get_jobs().jobs if job.id.startswith(PREFIX)}
    gone = [job_id for job_id in stored if pk_of(job_id) not in rows]
    if gone:
        with by_row():
            app.store.remove_jobs(gone)
    changed = len(gone)
    for pk, row in rows.items():
        try:
            with transaction.atomic(using=model._base_manager.db):
                changed += _put(app, row, stored.get(job_id_of(pk)))
        except (TypeError, ValueError, LookupError) as error:
            if row.next_run is not None:
                log.error("schedule %s (%s) cannot be used and is left alone: %s", pk, row, error)
    return changed


class ComparisonChore:
    """A chore that compares all rows with their jobs every few seconds, in one of the nodes."""

    def __init__(self, app: Mainspring, model: Any) -> None:
        self._app, self._model = app, model
        self._due_at = 0

    def __call__(self) -> None:
        """Compare if it is time and no other node does it."""
        now = self._app.now()
        if now < self._due_at or self._app.node is None:
            return
        self._due_at = now + int(COMPARE_SECONDS * SECOND)
        living = [node.id for node in self._app.nodes() if node.state != "silent"]
        if self._app.node.id == min(living, default=self._app.node.id):
            compare(self._app, self._model)
