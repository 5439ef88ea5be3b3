"""django-q2's last migration, which changes help texts only: it has a name here so that others can depend on it."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations


class Migration(migrations.Migration):
    """Change nothing."""

    dependencies: ClassVar = [("django_q", "0001_squashed_0018_task_success_index")]
    operations: ClassVar[list[Any]] = []
