"""The tables of django-q2 after its migration 0018. A database that has applied those migrations skips this one."""

from __future__ import annotations

from typing import Any, ClassVar

import django.utils.timezone
from django.db import migrations, models

NAMES = (
    "0001_initial",
    "0002_auto_20150630_1624",
    "0003_auto_20150708_1326",
    "0004_auto_20150710_1043",
    "0005_auto_20150718_1506",
    "0006_auto_20150805_1817",
    "0007_ormq",
    "0008_auto_20160224_1026",
    "0009_auto_20171009_0915",
    "0010_auto_20200610_0856",
    "0011_auto_20200628_1055",
    "0012_auto_20200702_1608",
    "0013_task_attempt_count",
    "0014_schedule_cluster",
    "0015_alter_schedule_schedule_type",
    "0016_schedule_intended_date_kwarg",
    "0017_task_cluster_alter",
    "0018_task_success_index",
)
TYPES = [
    *(("O", "Once"), ("I", "Minutes"), ("H", "Hourly"), ("D", "Daily"), ("W", "Weekly"), ("BW", "Biweekly")),
    *(("M", "Monthly"), ("BM", "Bimonthly"), ("Q", "Quarterly"), ("Y", "Yearly"), ("C", "Cron")),
]


def text(size: int, **options: Any) -> models.CharField:
    """Return a nullable text field."""
    return models.CharField(max_length=size, null=True, **options)


def key() -> models.AutoField:
    """Return an automatic integer key."""
    return models.AutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")


class Migration(migrations.Migration):
    """Make the tables for schedules, finished tasks and queued tasks."""

    initial = True
    replaces: ClassVar = [("django_q", name) for name in NAMES]
    dependencies: ClassVar[list[Any]] = []
    operations: ClassVar = [
        migrations.CreateModel(
            name="Schedule",
            fields=[
                ("id", key()),
                ("name", text(100, blank=True)),
                ("func", models.CharField(max_length=256)),
                ("hook", text(256, blank=True)),
                ("args", models.TextField(blank=True, null=True)),
                ("kwargs", models.TextField(blank=True, null=True)),
                ("schedule_type", models.CharField(choices=TYPES, default="O", max_length=2)),
                ("minutes", models.PositiveSmallIntegerField(blank=True, null=True)),
                ("repeats", models.IntegerField(default=-1)),
                ("next_run", models.DateTimeField(default=django.utils.timezone.now, null=True)),
                ("cron", text(100, blank=True)),
                ("task", text(100, editable=False)),
                ("cluster", text(100, blank=True, default=None)),
                ("intended_date_kwarg", text(100, blank=True)),
            ],
            options={"ordering": ["next_run"]},
        ),
        migrations.CreateModel(
            name="Task",
            fields=[
                ("id", models.CharField(editable=False, max_length=32, primary_key=True, serialize=False)),
                ("name", models.CharField(editable=False, max_length=100)),
                ("func", models.CharField(max_length=256)),
                ("hook", text(256)),
                # Pickles as text: mainspring never unpickles them.
                ("args", models.TextField(editable=False, null=True)),
                ("kwargs", models.TextField(editable=False, null=True)),
                ("result", models.TextField(editable=False, null=True)),
                ("group", text(100, editable=False)),
                ("cluster", text(100, blank=True, default=None)),
                ("started", models.DateTimeField(editable=False)),
                ("stopped", models.DateTimeField(editable=False)),
                ("success", models.BooleanField(default=True, editable=False)),
                ("attempt_count", models.IntegerField(default=0)),
            ],
            options={"ordering": ["-stopped"]},
        ),
        migrations.CreateModel(
            name="OrmQ",
            fields=[
                ("id", key()),
                ("key", models.CharField(max_length=100)),
                ("payload", models.TextField()),
                ("lock", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(name="Success", fields=[], options={"proxy": True}, bases=("django_q.task",)),
        migrations.CreateModel(name="Failure", fields=[], options={"proxy": True}, bases=("django_q.task",)),
    ]
