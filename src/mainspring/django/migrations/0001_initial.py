"""Make the store's tables, declare some of them as models, and make the table of schedules."""

from __future__ import annotations

from typing import Any, ClassVar

import django.utils.timezone
from django.db import migrations, models

import mainspring.django.fields
from mainspring.django.conf import conf
from mainspring.django.store.operations import StoreTables

STATE = [
    migrations.CreateModel(
        name="ActRecord",
        fields=[
            ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
            ("about", models.CharField(max_length=330)),
            ("frame", models.BinaryField()),
        ],
        options={
            "db_table": conf().table("acts"),
            "default_permissions": (),
        },
    ),
    migrations.CreateModel(
        name="BrokenJobRecord",
        fields=[
            ("incarnation", models.BigIntegerField(primary_key=True, serialize=False)),
            ("job", models.CharField(db_column="id", max_length=255)),
            ("reason", models.TextField()),
            ("broken_at", mainspring.django.fields.InstantField()),
        ],
        options={
            "db_table": conf().table("broken"),
            "default_permissions": (),
        },
    ),
    migrations.CreateModel(
        name="DeletedRunRecord",
        fields=[
            ("id", models.CharField(max_length=320, primary_key=True, serialize=False)),
            ("expires_at", mainspring.django.fields.InstantField()),
        ],
        options={
            "db_table": conf().table("gone"),
            "default_permissions": (),
        },
    ),
    migrations.CreateModel(
        name="GateRecord",
        fields=[
            ("id", models.CharField(max_length=255, primary_key=True, serialize=False)),
            ("allowed", models.IntegerField(null=True)),
        ],
        options={
            "db_table": conf().table("limits"),
            "default_permissions": (),
        },
    ),
    migrations.CreateModel(
        name="Job",
        fields=[
            ("id", models.CharField(max_length=255, primary_key=True, serialize=False)),
            ("next_run", mainspring.django.fields.InstantField(db_column="at", null=True)),
            ("nominal", mainspring.django.fields.InstantField(null=True)),
            ("due_at", mainspring.django.fields.InstantField(null=True)),
            ("frame", models.BinaryField()),
            ("version", models.BigIntegerField()),
            ("incarnation", models.BigIntegerField()),
            ("miss", models.TextField(null=True)),
        ],
        options={
            "db_table": conf().table("jobs"),
            "ordering": ["next_run", "id"],
            "default_permissions": ("view",),
        },
    ),
    migrations.CreateModel(
        name="NodeRecord",
        fields=[
            ("id", models.CharField(max_length=255, primary_key=True, serialize=False)),
            ("info", models.BinaryField()),
            ("expires_at", mainspring.django.fields.InstantField()),
        ],
        options={
            "db_table": conf().table("nodes"),
            "default_permissions": (),
        },
    ),
    migrations.CreateModel(
        name="QueueRecord",
        fields=[
            ("name", models.CharField(max_length=255, primary_key=True, serialize=False)),
            ("allowed", models.IntegerField()),
        ],
        options={
            "db_table": conf().table("queues"),
            "default_permissions": (),
        },
    ),
    migrations.CreateModel(
        name="Run",
        fields=[
            ("id", models.CharField(max_length=320, primary_key=True, serialize=False)),
            ("payload", models.BinaryField()),
            ("state", models.BinaryField()),
            ("live", models.BinaryField(null=True)),
            ("owner", models.CharField(max_length=320, null=True)),
            ("job", models.CharField(db_column="job_id", max_length=255, null=True)),
            ("cluster", models.CharField(db_column="queue", max_length=255)),
            ("lane", models.CharField(max_length=263)),
            ("status", models.CharField(max_length=10)),
            ("priority", models.IntegerField()),
            ("run_at", mainspring.django.fields.InstantField()),
            ("created", mainspring.django.fields.InstantField(db_column="created_at")),
            ("stopped", mainspring.django.fields.InstantField(db_column="finished_at", null=True)),
            ("keep", models.BigIntegerField()),
            ("token", models.CharField(max_length=255, null=True)),
            ("node", models.CharField(max_length=255, null=True)),
            ("lock", mainspring.django.fields.InstantField(db_column="lease_until", null=True)),
            ("claimed_at", mainspring.django.fields.InstantField(null=True)),
            ("attempt_count", models.IntegerField(db_column="attempt")),
            ("cancelling", models.IntegerField()),
            ("unique_key", models.CharField(max_length=255, null=True)),
            ("group", models.CharField(db_column="group_id", max_length=255, null=True)),
            ("func", models.CharField(db_column="task", max_length=255, null=True)),
            ("name", models.CharField(db_column="label", max_length=255, null=True)),
            ("expires_at", models.BigIntegerField(null=True)),
            ("waits", models.IntegerField()),
            ("followed", models.IntegerField()),
            ("refused", models.CharField(max_length=320, null=True)),
            ("gate", models.CharField(max_length=255, null=True)),
            ("gate_spec", models.CharField(max_length=100, null=True)),
            ("at_gate", models.CharField(max_length=255, null=True)),
        ],
        options={
            "db_table": conf().table("runs"),
            "ordering": ["-created", "-id"],
            "default_permissions": ("add", "change", "delete", "view"),
        },
    ),
    migrations.CreateModel(
        name="TallyRecord",
        fields=[
            ("id", models.CharField(max_length=300, primary_key=True, serialize=False)),
            ("cells", models.BinaryField()),
        ],
        options={
            "db_table": conf().table("tallies"),
            "default_permissions": (),
        },
    ),
    migrations.CreateModel(
        name="Failure",
        fields=[],
        options={
            "verbose_name": "failed task",
            "verbose_name_plural": "failed tasks",
            "proxy": True,
            "indexes": [],
            "constraints": [],
        },
        bases=("mainspring.run",),
    ),
    migrations.CreateModel(
        name="OrmQ",
        fields=[],
        options={
            "verbose_name": "queued task",
            "verbose_name_plural": "queued tasks",
            "proxy": True,
            "indexes": [],
            "constraints": [],
        },
        bases=("mainspring.run",),
    ),
    migrations.CreateModel(
        name="Success",
        fields=[],
        options={
            "verbose_name": "successful task",
            "verbose_name_plural": "successful tasks",
            "proxy": True,
            "indexes": [],
            "constraints": [],
        },
        bases=("mainspring.run",),
    ),
    migrations.CreateModel(
        name="Task",
        fields=[],
        options={
            "verbose_name": "task",
            "proxy": True,
            "indexes": [],
            "constraints": [],
        },
        bases=("mainspring.run",),
    ),
]
OUTBOX = migrations.CreateModel(
    name="OutboxRecord",
    fields=[
        ("id", models.CharField(max_length=320, primary_key=True, serialize=False)),
        ("row", models.BinaryField()),
        ("created_at", mainspring.django.fields.InstantField(db_index=True)),
    ],
    options={"db_table": conf().table("outbox"), "default_permissions": ()},
)


class Migration(migrations.Migration):
    """The first migration."""

    initial = True
    dependencies: ClassVar[list[Any]] = []
    operations: ClassVar = [
        migrations.SeparateDatabaseAndState([StoreTables(6, conf().tablename)], STATE),
        OUTBOX,
        migrations.CreateModel(
            name="Schedule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(blank=True, max_length=100, null=True)),
                ("func", models.CharField(help_text="e.g. module.tasks.function", max_length=256)),
                ("hook", models.CharField(blank=True, help_text="e.g. module.tasks.hook", max_length=256, null=True)),
                ("args", models.TextField(blank=True, help_text="e.g. 1, 2, 'John'", null=True)),
                ("kwargs", models.TextField(blank=True, help_text="e.g. x=1, y=2, name='John'", null=True)),
                (
                    "schedule_type",
                    models.CharField(
                        choices=[
                            ("O", "Once"),
                            ("I", "Minutes"),
                            ("H", "Hourly"),
                            ("D", "Daily"),
                            ("W", "Weekly"),
                            ("BW", "Biweekly"),
                            ("M", "Monthly"),
                            ("BM", "Bimonthly"),
                            ("Q", "Quarterly"),
                            ("Y", "Yearly"),
                            ("C", "Cron"),
                        ],
                        default="O",
                        max_length=2,
                        verbose_name="Schedule type",
                    ),
                ),
                (
                    "minutes",
                    models.PositiveSmallIntegerField(
                        blank=True, help_text="Number of minutes for the Minutes type", null=True
                    ),
                ),
                (
                    "repeats",
                    models.IntegerField(default=-1, help_text="n = n times, -1 = forever", verbose_name="Repeats"),
                ),
                (
                    "next_run",
                    models.DateTimeField(
                        blank=True, default=django.utils.timezone.now, null=True, verbose_name="Next run"
                    ),
                ),
                ("cron", models.CharField(blank=True, help_text="Cron expression", max_length=100, null=True)),
                ("task", models.CharField(editable=False, max_length=320, null=True)),
                ("cluster", models.CharField(blank=True, default=None, max_length=100, null=True)),
                (
                    "intended_date_kwarg",
                    models.CharField(
                        blank=True,
                        help_text="Name of the keyword argument that gets the time for which the run was planned",
                        max_length=100,
                        null=True,
                    ),
                ),
            ],
            options={
                "verbose_name": "Scheduled task",
                "verbose_name_plural": "Scheduled tasks",
                "ordering": ["next_run"],
            },
        ),
    ]
