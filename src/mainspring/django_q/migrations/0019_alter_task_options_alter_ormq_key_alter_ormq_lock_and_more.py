"""django-q2's last migration, which changes only help texts. It exists here so that others can depend on its name."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations


class Migration(migrations.Migration):
    """Change nothing."""

    dependencies: ClassVar = [("django_q", "0001_squashed_0018_task_success_index")]
    operations: ClassVar[list[Any]] = []
