"""django-q's brokers by their usual path: one class for all stores."""

from __future__ import annotations

import re
from typing import Any

from django.core.cache import cache

from mainspring import tasks

__all__ = ["Broker", "get_broker"]


class Broker(tasks.Broker):
    """One queue of the project, with what django-q's brokers have besides."""

    cache = cache
    """Django's own: results are in the store, so none is in there."""

    def __init__(self, list_key: str | None = None) -> None:
        super().__init__(_queue(list_key))

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, _queue(value) if name == "list_key" else value)

    def enqueue(self, func: Any, /, *args: Any, **kwargs: Any) -> str:
        """Put a call into the queue: a function and its arguments, or one that a `SignedPackage` describes."""
        if args or kwargs or not isinstance(func, str) or _NAME.fullmatch(func):
            return super().enqueue(func, *args, **kwargs)
        from mainspring.django.importing.django_q import enqueue_payload  # it imports the models

        return enqueue_payload(self.list_key, func)


_NAME = re.compile(r"[\w.:]+")
"""A function; a package has other characters, too."""


def _queue(list_key: str | None) -> str | None:
    """Return a name that a queue can have: django-q's may have colons."""
    return list_key and re.sub("[,:{}*]", "_", list_key)


def get_broker(list_key: str | None = None) -> Broker:
    """Return the broker of a queue, by default of the one that `async_task` puts calls into."""
    return Broker(list_key)
