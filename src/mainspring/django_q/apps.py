"""The Django app: `"mainspring.django_q"` in INSTALLED_APPS."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from mainspring.django.apps import MainspringConfig

__all__ = ["DjangoQConfig"]


class DjangoQConfig(MainspringConfig):
    """`mainspring.django` under the label `django_q`: the same tables, admin URLs, permissions and commands."""

    default = True  # this module also contains the base class
    label = "django_q"
    default_auto_field = "django.db.models.AutoField"

    def __init__(self, app_name: str, app_module: Any) -> None:
        super().__init__(app_name, app_module)
        # Django looks for migrations beside the models, and the migrations there belong to another label.
        settings.MIGRATION_MODULES = {self.label: "mainspring.django_q.migrations", **settings.MIGRATION_MODULES}

    def ready(self) -> None:
        """Start as the base class does; raise a clear error if the project still imports django-q."""
        try:
            super().ready()
        except RuntimeError as error:
            if "django_q.models" not in str(error):
                raise
            raise ImproperlyConfigured(
                "a module of this project still imports django_q, whose models are those of mainspring.django_q now; "
                "find it with: grep -rnE '(from|import) django_q' --include=*.py --exclude-dir=.venv . "
                "and write mainspring.django_q in its place"
            ) from error
