"""django-q's `Conf` under its usual path: the settings in use, under django-q's names."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, Final

from django.conf import settings
from django.core.signals import setting_changed

from mainspring.django.conf import conf, patches
from mainspring.django.importing.q_cluster import IGNORED
from mainspring.errors import near

__all__ = ["Conf", "logger"]

logger = logging.getLogger("django-q")

_GIVEN: Final[dict[str, tuple[str, Any]]] = {
    "REDIS": ("redis", {}),
    "DJANGO_REDIS": ("django_redis", None),
    "ORM": ("orm", None),
    "MONGO": ("mongo", None),
    "MONGO_DB": ("mongo_db", None),
    "IRON_MQ": ("iron_mq", None),
    "SQS": ("sqs", None),
    "BROKER_CLASS": ("broker_class", None),
    "PREFIX": ("name", "default"),
    "SAVE_LIMIT": ("save_limit", 250),
    "RETRY": ("retry", 60),
    "ACK_FAILURES": ("ack_failures", False),
    "MAX_ATTEMPTS": ("max_attempts", 0),
    "CATCH_UP": ("catch_up", True),
}
"""The names whose values come from Q_CLUSTER, or from django-q's defaults."""
_USED: Final[dict[str, Callable[[Any], Any]]] = {
    "CLUSTER_NAME": lambda found: found.default_queue,
    "WORKERS": lambda found: found.processes or os.cpu_count() or 1,
    "RECYCLE": lambda found: found.max_runs,
    "MAX_RSS": lambda found: None if found.max_rss is None else found.max_rss // 1024,
    "TIMEOUT": lambda found: found.timeout,
    "SCHEDULER": lambda found: found.schedule,
    "SYNC": lambda found: found.inline,
    "LABEL": lambda found: found.label,
    "LOG_LEVEL": lambda found: (found.log_level or "info").upper(),
    "TIME_ZONE": lambda found: found.timezone,
    "ERROR_REPORTER": lambda found: dict(found.error_reporter),
    "SECRET_KEY": lambda found: settings.SECRET_KEY,
}
"""The names whose values are the settings in use."""


def _patch(key: str, *value: Any) -> None:
    """Set a key of Q_CLUSTER, or undo that, for this process; a Django signal notifies the readers."""
    patches.pop(key, None)
    patches.update(dict.fromkeys([key], *value) if value else {})
    setting_changed.send(sender=Conf, setting="Q_CLUSTER", value=value, enter=bool(value))


class _Names(type):
    """A metaclass that reads the settings at each use, so `override_settings` and values set by tests take effect."""

    def __setattr__(cls, name: str, value: Any) -> None:
        _patch(cls._key(name), value)

    def __delattr__(cls, name: str) -> None:
        _patch(cls._key(name))

    def _key(cls, name: str) -> str:
        """Return the key of Q_CLUSTER for a name."""
        if name == "SECRET_KEY":
            raise AttributeError("Conf.SECRET_KEY is the project's own; change that with override_settings")
        getattr(cls, name)  # raises for an unknown name
        return _GIVEN[name][0] if name in _GIVEN else name.lower()

    def __getattr__(cls, name: str) -> Any:
        if name in _USED:
            return _USED[name](conf())
        if name in _GIVEN:
            key, default = _GIVEN[name]
            return {**(getattr(settings, "Q_CLUSTER", None) or {}), **patches}.get(key, default)
        if name.lower() in IGNORED:
            raise AttributeError(f"Conf.{name} has no meaning here: {IGNORED[name.lower()]}")
        raise AttributeError(f"Conf has no {name!r}{near(name, [*_USED, *_GIVEN])}; see mainspring.django.conf.conf()")


class Conf(metaclass=_Names):
    """The settings under django-q's names. Write them in Q_CLUSTER or MAINSPRING; tests may set them here."""

    STARTING, WORKING, IDLE, STOPPED, STOPPING = "Starting", "Working", "Idle", "Stopped", "Stopping"
