"""django-q's brokers under their usual path: one class for all stores."""

from __future__ import annotations

import re
from typing import Any

from django.core.cache import cache

from mainspring import tasks

__all__ = ["Broker", "get_broker"]


class Broker(tasks.Broker):
    """One queue of the project, with the additional attributes of django-q's brokers."""

    cache = cache
    """Django's cache. It holds no results: they are in the store."""

    def __init__(self, list_key: str | None = None) -> None:
        super().__init__(_queue(list_key))

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, _queue(value) if name == "list_key" else value)

    def enqueue(self, func: Any, /, *args: Any, **kwargs: Any) -> str:
        """Enqueue a call: a function and its arguments, or a `SignedPackage` that describes one."""
        if args or kwargs or not isinstance(func, str) or _NAME.fullmatch(func):
            return super().enqueue(func, *args, **kwargs)
        from mainspring.django.importing.django_q import enqueue_payload  # it imports the models

        return enqueue_payload(self.list_key, func)


_NAME = re.compile(r"[\w.:]+")
"""The name of a function; a package contains other characters, too."""


def _queue(list_key: str | None) -> str | None:
    """Return a valid queue name: django-q's names may contain colons."""
    return list_key and re.sub("[,:{}*]", "_", list_key)


def get_broker(list_key: str | None = None) -> Broker:
    """Return the broker of a queue, by default the queue that `async_task` uses."""
    return Broker(list_key)
