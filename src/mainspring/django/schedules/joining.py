"""Connect the project's app with its schedules, and with the defaults for django-q's verbs."""

from __future__ import annotations

from typing import Any

from django.core.signals import setting_changed

from mainspring.app.runs import ALIAS
from mainspring.django.conf import NAMES, conf
from mainspring.django.schedules.jobs import PREFIX
from mainspring.django.schedules.writing import ComparisonChore

__all__ = ["join"]


def join(app: Any, schedules: Any) -> None:
    """Give an app the model of the schedules, and let it follow the settings for calls."""
    app.jobs.declared_elsewhere = (PREFIX,)

    def read_defaults(*, setting: str = NAMES[0], **_: Any) -> None:
        if setting in NAMES:
            app.call_defaults = call_defaults()

    def compare_now_and_then(_: str) -> None:
        app.node.links[ALIAS].janitor.chores.append(ComparisonChore(app, schedules))

    read_defaults()
    setting_changed.connect(read_defaults, weak=False, dispatch_uid="mainspring.django.joining")
    app.on("post_spawn", compare_now_and_then)


def call_defaults() -> dict[str, Any]:
    """Return the options from the settings for calls through django-q's verbs."""
    found = conf()
    dropped = {} if found.save_successes else {"save": False}
    return {**found.options, "queue": found.default_queue, **dropped}
