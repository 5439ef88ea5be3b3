"""The Django app: `"mainspring.django"` in INSTALLED_APPS."""

from __future__ import annotations

import logging

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules

__all__ = ["MainspringConfig"]


class MainspringConfig(AppConfig):
    """mainspring in a project: its tables, checks and settings. It imports `tasks.py` of every app."""

    name = "mainspring.django"
    label = "mainspring"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Give mainspring.tasks the project's app, register the checks, and import the tasks of all apps."""
        # Imported late: these modules read the settings.
        from mainspring.django import checks  # noqa: F401
        from mainspring.django.application import app
        from mainspring.django.conf import conf
        from mainspring.django.schedules.joining import join
        from mainspring.tasks.current import set_app

        self.verbose_name = conf().label
        if conf().log_level is not None:
            logging.getLogger("mainspring").setLevel(str(conf().log_level).upper())
        set_app(app)
        join(app, self.get_model("Schedule"))
        autodiscover_modules("tasks")
