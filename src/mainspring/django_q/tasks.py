"""django-q's verbs under their usual path."""

from typing import Any

from mainspring.django.tasks import *  # noqa: F403
from mainspring.django.tasks import __all__  # noqa: F401
from mainspring.django_q.brokers import Broker, get_broker  # type: ignore[assignment]  # noqa: F401


def __getattr__(name: str) -> Any:
    """Return the models that django-q's module also contains, once Django has loaded them."""
    if name in ("Schedule", "Task"):
        from mainspring.django import models

        return getattr(models, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
