"""`ProjectStore`: the store of a project. It updates schedule rows when their jobs fire or change."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from django.apps import apps
from django.db import Error, transaction

from mainspring.core.instants import from_us
from mainspring.core.plan import Firing
from mainspring.django.schedules.jobs import pk_of
from mainspring.django.schedules.writing import compare, is_by_row
from mainspring.django.store import DjangoStore
from mainspring.jobstores.base import Answers
from mainspring.jobstores.records.rows import JobRow
from mainspring.jobstores.sqlalchemy.database import StoreTx

__all__ = ["ProjectStore"]

log = logging.getLogger("mainspring.django")


class ProjectStore(DjangoStore):
    """A store on Django's connections that keeps the rows of `Schedule` in step with their jobs."""

    def _rows(self) -> Any:
        """Return the schedule rows in this store's database; None if they are elsewhere or not installed."""
        for label in ("mainspring", "django_q"):
            if apps.is_installed("mainspring.django") and label in apps.app_configs:
                model = apps.get_model(label, "Schedule")
                return model._base_manager.using(self.alias) if model._base_manager.db == self.alias else None
        return None

    def start(self, scheduler: Any, alias: str) -> None:
        super().start(scheduler, alias)
        rows = self._rows()
        if rows is not None and self._open().other_schema is None:
            compare(scheduler, rows.model)

    # -- fires -------------------------------------------------------------------------------------------------

    def fire(self, firings: Sequence[Firing], lease: float) -> Answers[tuple[str, ...] | None]:
        rows = self._rows() if any(pk_of(step.job_id) is not None for step in firings) else None
        if rows is None:
            return super().fire(firings, lease)
        database, packed = self._working(), [self._fire_row(step) for step in firings]
        versions = database.versions(len(firings))

        def steps(tx: StoreTx) -> Answers[tuple[str, ...] | None]:
            answers = tx.fire(packed, lease, versions)
            for step, inserted in zip(firings, answers, strict=True):
                pk = pk_of(step.job_id)
                if inserted is not None and pk is not None:
                    _on_connection(self._write_back, tx, rows, pk, step, inserted)
            return answers

        answers = database.write(steps)
        self._delete_used_up(rows, firings)
        return answers

    def _write_back(self, tx: StoreTx, rows: Any, pk: int, step: Firing, inserted: tuple[str, ...]) -> None:
        """Write a fire back to the row: the next time, the started run, and the remaining repeats."""
        changes: dict[str, Any] = {"next_run": None if step.next_at is None else from_us(step.next_at)}
        if inserted:
            changes["task"] = inserted[-1]
        if not step.unscheduled:
            left = rows.filter(pk=pk, repeats__gt=0).values_list("repeats", flat=True).first()
            if left is not None:
                spent = sum(run.count for run in (*step.runs, *step.missed))
                changes["repeats"] = 0 if step.next_at is None else max(0, left - spent)
                if not changes["repeats"] and step.next_at is not None:
                    tx.run("DELETE FROM {jobs} WHERE id {in}", tx.many([step.job_id]))
        rows.filter(pk=pk).update(**changes)

    def _delete_used_up(self, rows: Any, firings: Sequence[Firing]) -> None:
        """Delete rows that have fired their only time; if this fails, `compare` repeats it."""
        ended = [pk_of(step.job_id) for step in firings if step.next_at is None and not step.unscheduled]
        if not ended:
            return
        try:
            found = rows.filter(pk__in=ended, schedule_type="O", repeats__lt=0, next_run=None).exclude(task=None)
            found.delete()
        except Exception:
            log.exception("schedules that have fired their only time are not deleted yet: %s", ended)

    # -- changes by people -------------------------------------------------------------------------------------

    def _update_job_row(self, row: JobRow) -> int:
        rows = None if is_by_row() or pk_of(row.id) is None else self._rows()
        if rows is None:
            return super()._update_job_row(row)
        with transaction.atomic(using=self.alias):
            version = super()._update_job_row(row)
            rows.filter(pk=pk_of(row.id)).update(next_run=None if row.at is None else from_us(row.at))
        return version

    def remove_jobs(self, job_ids: Sequence[str] | None = None, *, broken: bool = False) -> int:
        rows = None if is_by_row() or broken else self._rows()
        pks = [] if job_ids is None else [pk for pk in map(pk_of, job_ids) if pk is not None]
        if rows is None or not (job_ids is None or pks):
            return super().remove_jobs(job_ids, broken=broken)
        with transaction.atomic(using=self.alias):
            # Removing a job by hand pauses its schedule: the row stays until a person deletes it.
            (rows.all() if job_ids is None else rows.filter(pk__in=pks)).update(next_run=None)
            return super().remove_jobs(job_ids, broken=broken)


def _on_connection(work: Any, *args: Any) -> None:
    """Use the ORM on the connection whose transaction the store has begun; raise the driver's errors."""
    try:
        work(*args)
    except Error as error:
        raise error.__cause__ or error from None
