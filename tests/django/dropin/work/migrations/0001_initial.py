"""A data migration as users of django-q write them: it adds a schedule by the historical model."""

from __future__ import annotations

from typing import Any

from django.db import migrations


def add_schedule(apps: Any, schema_editor: Any) -> None:
    apps.get_model("django_q", "Schedule").objects.create(
        func="tests.django.dropin.work.tasks.add", args="20, 3", name="by a migration", schedule_type="H"
    )


class Migration(migrations.Migration):
    dependencies = (("django_q", "0014_schedule_cluster"),)
    operations = (migrations.RunPython(add_schedule, migrations.RunPython.noop),)
