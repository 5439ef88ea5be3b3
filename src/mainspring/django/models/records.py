"""The small tables of the store. They are models so that a `TransactionTestCase` empties them, too.

The table `meta` is not a model: it holds the schema, and emptying it would destroy the store.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from django.db import models

from mainspring.django.conf import conf
from mainspring.django.fields import InstantField, KeyField

__all__ = [
    "ActRecord",
    "BrokenJobRecord",
    "DeletedRunRecord",
    "GateRecord",
    "Job",
    "NodeRecord",
    "OutboxRecord",
    "QueueRecord",
    "StoreRecord",
    "TallyRecord",
    "refuse",
]


def refuse(verb: str, instead: str) -> NoReturn:
    """Raise the error for a write that would bypass the store."""
    raise TypeError(f"{verb} would pass the store by, which keeps several tables in step; {instead}")


class StoreRecord(models.Model):
    """A row that only the store writes."""

    class Meta:
        abstract = True
        default_permissions: ClassVar[tuple[str, ...]] = ()

    def save(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise: only the store writes its rows."""
        refuse(f"{type(self).__name__}.save()", "use the verbs of mainspring.django.app.app")


class Job(StoreRecord):
    """A job: what to call and when. `app.jobs()` returns jobs unpacked."""

    id = models.CharField(max_length=255, primary_key=True)
    next_run = InstantField(db_column="at", null=True)
    nominal = InstantField(null=True)
    due_at = InstantField(null=True)
    frame = models.BinaryField()
    version = models.BigIntegerField()
    incarnation = models.BigIntegerField()
    miss = models.TextField(null=True)

    class Meta(StoreRecord.Meta):
        db_table = conf().table("jobs")
        ordering: ClassVar[list[str]] = ["next_run", "id"]
        default_permissions = ("view",)


class BrokenJobRecord(StoreRecord):
    """A job that could not be restored, set aside with the reason."""

    incarnation = models.BigIntegerField(primary_key=True)
    job = models.CharField(max_length=255, db_column="id")
    reason = models.TextField()
    broken_at = InstantField()

    class Meta(StoreRecord.Meta):
        db_table = conf().table("broken")


class DeletedRunRecord(StoreRecord):
    """The id of a run that was deleted in the last hour."""

    id = KeyField(max_length=320, primary_key=True)
    expires_at = InstantField()

    class Meta(StoreRecord.Meta):
        db_table = conf().table("gone")


class GateRecord(StoreRecord):
    """A gate, with the number of runs that it lets through."""

    id = models.CharField(max_length=255, primary_key=True)
    allowed = models.IntegerField(null=True)

    class Meta(StoreRecord.Meta):
        db_table = conf().table("limits")


class QueueRecord(StoreRecord):
    """A queue that is paused or has a limit."""

    name = models.CharField(max_length=255, primary_key=True)
    allowed = models.IntegerField()

    class Meta(StoreRecord.Meta):
        db_table = conf().table("queues")


class NodeRecord(StoreRecord):
    """A living node, as it announced itself."""

    id = models.CharField(max_length=255, primary_key=True)
    info = models.BinaryField()
    expires_at = InstantField()

    class Meta(StoreRecord.Meta):
        db_table = conf().table("nodes")


class OutboxRecord(StoreRecord):
    """A run for a store elsewhere: committed here, and not handed over yet."""

    id = KeyField(max_length=320, primary_key=True)
    row = models.BinaryField()
    created_at = InstantField(db_index=True)

    class Meta(StoreRecord.Meta):
        db_table = conf().table("outbox")


class ActRecord(StoreRecord):
    """An act of a person."""

    id = models.CharField(max_length=40, primary_key=True)
    about = models.CharField(max_length=330)
    frame = models.BinaryField()

    class Meta(StoreRecord.Meta):
        db_table = conf().table("acts")


class TallyRecord(StoreRecord):
    """A counter that outlives the runs it counts."""

    id = KeyField(max_length=300, primary_key=True)
    cells = models.BinaryField()

    class Meta(StoreRecord.Meta):
        db_table = conf().table("tallies")
