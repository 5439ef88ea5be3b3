"""Runs as models, under django-q's names: `Task` holds all, `Success`, `Failure` and `OrmQ` a part each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, NoReturn

from django.db import models
from django.db.models import Case, F, When
from django.utils.functional import cached_property

from mainspring.core.run import FINAL, Status
from mainspring.core.showing.run_view import RunView
from mainspring.django.conf import conf
from mainspring.django.fields import InstantField, KeyField
from mainspring.django.models.records import StoreRecord, refuse
from mainspring.django.models.task_verbs import ENDED, TaskVerbs
from mainspring.django.schedules.writing import project_app
from mainspring.jobstores.records.rows import RunRow
from mainspring.tasks.fetching import FetchedTask

__all__ = ["Failure", "OrmQ", "Run", "RunQuerySet", "Success", "Task"]

FAILED = tuple(value for value in ENDED if value != Status.SUCCEEDED.value)
WAITING = tuple(status.value for status in Status if status not in FINAL)


class RunQuerySet(models.QuerySet):
    """Runs that the ORM reads and the store deletes."""

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete ended runs, and waiting ones after cancelling them; only stop running ones, which stay."""
        app, number = project_app(), 0
        for run_id, status in list(self.values_list("pk", "status")):
            if status in WAITING:
                app.cancel(run_id)
            number += app.delete(run_id)
        return number, {self.model._meta.label: number}

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]

    def create(self, **values: Any) -> Any:
        """Store an ended task, or enqueue a signed payload. To enqueue a call, use `app.enqueue`."""
        return self.model._default_manager.using(self.db).get(pk=self.model.store_new(values))

    create.alters_data = True  # type: ignore[attr-defined]

    def update(self, **values: Any) -> NoReturn:
        """Raise: only the store changes its rows."""
        refuse("update() of runs", "use app.cancel, app.retry, app.prioritize, app.postpone or app.move")

    def bulk_create(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise: enqueue calls instead."""
        refuse("bulk_create() of runs", "use app.enqueue_many")


class RunManager(models.Manager.from_queryset(RunQuerySet)):  # type: ignore[misc]
    """All runs, or those with certain statuses."""

    def __init__(self, statuses: Sequence[str] = (), **named: Any) -> None:
        super().__init__()
        self._statuses, self._named = tuple(statuses), named

    def deconstruct(self) -> Any:
        """Keep managers out of migrations."""
        raise ValueError("not serialized")

    def get_queryset(self) -> Any:
        """Return the runs, with `success` as a column to filter and sort by."""
        succeeded = Case(
            When(status=Status.SUCCEEDED.value, then=True), default=False, output_field=models.BooleanField()
        )
        found = super().get_queryset().annotate(success=succeeded, **self._named)
        return found.filter(status__in=self._statuses) if self._statuses else found


class Run(StoreRecord):
    """A run. Its columns can be filtered and sorted; packed values are unpacked on access."""

    id = KeyField(max_length=320, primary_key=True)
    payload = models.BinaryField()
    state = models.BinaryField()
    live = models.BinaryField(null=True)
    owner = models.CharField(max_length=320, null=True)
    job = models.CharField(max_length=255, null=True, db_column="job_id")
    cluster = models.CharField(max_length=255, db_column="queue")
    lane = models.CharField(max_length=263)
    status = models.CharField(max_length=10)
    priority = models.IntegerField()
    run_at = InstantField()
    created = InstantField(db_column="created_at")
    stopped = InstantField(null=True, db_column="finished_at")
    keep = models.BigIntegerField()
    token = models.CharField(max_length=255, null=True)
    node = models.CharField(max_length=255, null=True)
    lock = InstantField(null=True, db_column="lease_until")
    claimed_at = InstantField(null=True)
    attempt_count = models.IntegerField(db_column="attempt")
    cancelling = models.IntegerField()
    unique_key = models.CharField(max_length=255, null=True)
    group = models.CharField(max_length=255, null=True, db_column="group_id")
    func = models.CharField(max_length=255, null=True, db_column="task")
    name = models.CharField(max_length=255, null=True, db_column="label")
    expires_at = models.BigIntegerField(null=True)
    waits = models.IntegerField()
    followed = models.IntegerField()
    refused = models.CharField(max_length=320, null=True)
    gate = models.CharField(max_length=255, null=True)
    gate_spec = models.CharField(max_length=100, null=True)
    at_gate = models.CharField(max_length=255, null=True)

    objects = RunManager()

    class Meta:
        db_table = conf().table("runs")
        ordering: ClassVar[list[str]] = ["-created", "-id"]
        default_permissions = ("add", "change", "delete", "view")

    def __str__(self) -> str:
        return str(self.name or self.id)

    @classmethod
    def store_new(cls, values: Mapping[str, Any]) -> str:
        """Raise: runs are stored by enqueueing calls."""
        refuse(f"{cls.__name__}.objects.create()", "use app.enqueue")

    @cached_property
    def view(self) -> RunView:
        """The run as `app.get` returns it, verified."""
        app = project_app()
        row = RunRow(
            id=self.id, call=bytes(self.payload), state=bytes(self.state),
            live=None if self.live is None else bytes(self.live), owner=self.owner, job_id=self.job,
            queue=self.cluster, lane=self.lane, status=self.status, priority=self.priority,
            run_at=_us(self.run_at) or 0, created_at=_us(self.created) or 0, finished_at=_us(self.stopped),
            keep=self.keep, token=self.token, node=self.node, lease_until=_us(self.lock),
            claimed_at=_us(self.claimed_at), attempt=self.attempt_count, cancelling=bool(self.cancelling),
            unique=self.unique_key, group=self.group, waits=self.waits,
            followed=self.followed, refused=self.refused, gate=self.gate, gate_spec=self.gate_spec,
        )  # fmt: skip
        return RunView(app.store.shown(row), app.timezone)

    @property
    def task(self) -> FetchedTask:
        """The run under django-q's names."""
        return FetchedTask(project_app(), self.view)

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments."""
        return self.task.args

    @property
    def kwargs(self) -> Any:
        """The keyword arguments."""
        return self.task.kwargs

    @property
    def hook(self) -> str | None:
        """The name of the hook."""
        return self.task.hook

    @property
    def result(self) -> Any:
        """The return value, or the failure as text; None while the run is unfinished."""
        return self.task.result if self.status in ENDED else None

    @property
    def started(self) -> datetime | None:
        """The start of the last attempt."""
        view: RunView = self.view
        return view.started_at

    def time_taken(self) -> float | None:
        """Return the seconds that the last attempt took."""
        started, stopped = self.started, self.stopped
        return None if started is None or stopped is None else (stopped - started).total_seconds()

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Delete the run, after cancelling it if it waits; only stop a running one, which stays."""
        found: tuple[int, dict[str, int]] = Run.objects.filter(pk=self.pk).delete()
        return found


def _us(moment: Any) -> int | None:
    return InstantField().get_prep_value(moment)


class Task(TaskVerbs, Run):
    """Any run, under django-q's name."""

    objects = RunManager()

    class Meta:
        proxy = True
        verbose_name = "task"


class Success(TaskVerbs, Run):
    """A run that succeeded."""

    objects = RunManager([Status.SUCCEEDED.value])

    class Meta:
        proxy = True
        verbose_name = "successful task"
        verbose_name_plural = "successful tasks"


class Failure(TaskVerbs, Run):
    """A run that failed, was cancelled, missed its time or is broken."""

    objects = RunManager(FAILED)

    class Meta:
        proxy = True
        verbose_name = "failed task"
        verbose_name_plural = "failed tasks"


class OrmQ(Run):
    """A waiting or running run; `key` is its queue."""

    objects = RunManager(WAITING, key=F("cluster"))

    @classmethod
    def store_new(cls, values: Mapping[str, Any]) -> str:
        """Enqueue the call in a payload of `SignedPackage`; return the run's id."""
        from mainspring.django.importing.django_q import enqueue_payload  # it imports the app

        if not {"payload"} <= values.keys() <= {"key", "payload", "lock"}:
            raise TypeError("a queued task is made of a key and a payload; to enqueue a call, use async_task")
        return enqueue_payload(values.get("key"), values["payload"])

    class Meta:
        proxy = True
        verbose_name = "queued task"
        verbose_name_plural = "queued tasks"
