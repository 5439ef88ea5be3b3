"""Migrate from django-q2 to mainspring: keep its schedules, and make the store's tables.

Empty tables of finished and queued tasks are dropped, as in a new database. Other tables stay for
`manage.py mainspring_import_django_q`.
"""

from __future__ import annotations

from copy import copy
from importlib import import_module
from typing import Any, ClassVar

from django.db import migrations

from mainspring.django.conf import conf
from mainspring.django.store.operations import StoreTables

ours: Any = import_module("mainspring.django.migrations.0001_initial")


def under_label(operation: Any) -> Any:
    """Return one of our operations, moved to django-q's label."""
    made = copy(operation)
    if made.bases == ("mainspring.run",):
        made.bases = ("django_q.run",)
    return made


def drop_empty_tables(apps: Any, schema_editor: Any) -> None:
    """Drop the task tables if there is nothing in them to import."""
    for name in ("Task", "OrmQ"):
        model = apps.get_model("django_q", name)
        alias = schema_editor.connection.alias
        if not model._base_manager.using(alias).exists():
            schema_editor.delete_model(model)


(SCHEDULE,) = (each for each in ours.Migration.operations if getattr(each, "name", None) == "Schedule")
GONE = ("Success", "Failure", "Task", "OrmQ")


class Migration(migrations.Migration):
    """Make the store's tables, and take over the schedules."""

    dependencies: ClassVar = [("django_q", "0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more")]
    operations: ClassVar = [
        # Not atomic: MariaDB cannot roll back a dropped table.
        migrations.RunPython(drop_empty_tables, migrations.RunPython.noop, atomic=False),
        migrations.SeparateDatabaseAndState([], [migrations.DeleteModel(name) for name in GONE]),
        migrations.SeparateDatabaseAndState(
            [StoreTables(6, conf().tablename)], [under_label(operation) for operation in ours.STATE]
        ),
        ours.OUTBOX,
        *(migrations.AlterField("Schedule", name, field) for name, field in SCHEDULE.fields if name != "id"),
        migrations.AlterModelOptions("Schedule", SCHEDULE.options),
    ]
