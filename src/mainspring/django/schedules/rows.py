"""The behaviour of the model `Schedule`: a row writes its job when it is written, and finds its last run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from keyword import iskeyword
from typing import Any

from django.apps import apps
from django.core.exceptions import ValidationError
from django.db import models, router, transaction
from django.db.models.signals import post_delete
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html

from mainspring.core.job import Job
from mainspring.django.conf import conf
from mainspring.django.schedules.jobs import CRON, following, job_id_of, make_job, read_args, read_kwargs
from mainspring.django.schedules.writing import project_app, remove_jobs, write_jobs

__all__ = ["ScheduleQuerySet", "ScheduleVerbs", "link_to", "watch_deletions"]


class ScheduleQuerySet(models.QuerySet):
    """Schedules that write their jobs in the same transaction."""

    def update(self, **values: Any) -> int:
        """Change rows and their jobs."""
        with transaction.atomic(using=self.db):
            pks = list(self.order_by().values_list("pk", flat=True))
            number = int(super().update(**values))
            write_jobs(self.model, pks, self.db)
        return number

    update.alters_data = True  # type: ignore[attr-defined]

    def bulk_create(self, objs: Iterable[Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Add rows and their jobs."""
        rows: Sequence[Any] = list(objs)
        for row in rows:
            row.prepare()
        with transaction.atomic(using=self.db):
            made: list[Any] = super().bulk_create(rows, *args, **kwargs)
            pks = [row.pk for row in made if row.pk is not None]
            if len(pks) < len(made):  # the database does not return the keys: use all rows
                pks = list(self.model._base_manager.using(self.db).values_list("pk", flat=True))
            write_jobs(self.model, pks, self.db)
        return made


class ScheduleVerbs:
    """The verbs of a row, under django-q's names."""

    def save(self: Any, *args: Any, **kwargs: Any) -> None:
        """Write the row and its job; raise ValueError for unreadable arguments or an unreadable cron expression."""
        using = kwargs.get("using") or router.db_for_write(type(self), instance=self)
        self.prepare()
        with transaction.atomic(using=using):
            super().save(*args, **kwargs)  # type: ignore[misc]
            write_jobs(type(self), [self.pk], using)

    save.alters_data = True  # type: ignore[attr-defined]

    def prepare(self: Any) -> None:
        """Set the first time of a new cron schedule."""
        if self.pk is None and self.schedule_type == CRON and self.cron:
            self.next_run = self.calculate_next_run()

    @property
    def job(self: Any) -> Job | None:
        """The row's job; None while the row is paused or used up."""
        found = project_app().store.get_jobs([job_id_of(self.pk)]).jobs if self.pk is not None else []
        return found[0] if found else None

    def calculate_next_run(self: Any, next_run: datetime | None = None) -> datetime | None:
        """Return the time after the next one, or after a given one; for a cron schedule, the first from now on.

        Times follow the wall clock of the project's zone: months keep their day, and days their hour.
        """
        if self.schedule_type == CRON:
            return following(project_app(), self, timezone.now())
        after = next_run or self.next_run
        return None if after is None else following(project_app(), self, after, self.job)

    def resume(self: Any) -> None:
        """Let a paused schedule fire again, at its next time from now."""
        if self.repeats == 0:
            raise ValueError("it has no repeats left; set them, and when it runs next")
        now = timezone.now()
        self.next_run = now if self.schedule_type == "O" else following(project_app(), self, now)
        self.save()

    def success(self: Any) -> bool | None:
        """Return True if the last run succeeded; None if there is none, or it has not ended."""
        run = self.last_task()
        return None if run is None or run.stopped is None else bool(run.success)

    success.boolean = True  # type: ignore[attr-defined]

    def last_task(self: Any) -> Any:
        """Return the last run that the schedule started, if the store still has it."""
        runs = apps.get_model(self._meta.app_label, "Task")
        return runs.objects.filter(pk=self.task).first() if self.task else None

    def last_run(self: Any) -> str | None:
        """Return a link to the last run's admin page; None if the store no longer has the run."""
        run = self.last_task()
        return None if run is None else link_to(run)

    def clean(self: Any) -> None:
        """Check a row for a form: its function, arguments and cron expression."""
        wrong: dict[str, str] = {}
        for field, read in (("args", read_args), ("kwargs", read_kwargs)):
            try:
                read(getattr(self, field))
            except ValueError as error:
                wrong[field] = str(error)
        word = self.intended_date_kwarg
        if word and (not word.isidentifier() or iskeyword(word)):
            wrong["intended_date_kwarg"] = f"{word!r} is not the name of an argument"
        if self.schedule_type == CRON and not self.cron:
            wrong["cron"] = "a schedule of the type Cron needs a cron expression"
        if not wrong:
            try:
                self.prepare()
                make_job(project_app(), self, None, coalesce=conf().coalesce)
            except (TypeError, ValueError, LookupError) as error:
                wrong["cron" if self.schedule_type == CRON else "func"] = str(error)
        if wrong:
            raise ValidationError(wrong)


def link_to(run: Any) -> Any:
    """Return a link to the admin page of a run."""
    page = "ormq" if run.stopped is None else "success" if run.success else "failure"
    url = reverse(f"admin:{run._meta.app_label}_{page}_change", args=(run.pk,))
    return format_html('<a href="{}">[{}]</a>', url, run)


def watch_deletions(model: Any) -> None:
    """Remove the job of each row that is deleted, also by a cascade."""
    post_delete.connect(_deleted, sender=model, dispatch_uid=f"mainspring.{model._meta.label}")


def _deleted(*, instance: Any, using: str, **_: Any) -> None:
    remove_jobs([instance.pk], using)
