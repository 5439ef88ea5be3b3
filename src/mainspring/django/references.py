"""Model instances as arguments: a run holds a reference, and reads the current instance when it starts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.apps import apps
from django.db.models import Model
from django.utils.functional import LazyObject, Promise, empty

from mainspring.codec import TypeBook
from mainspring.core.references import iscoroutinefunction_partial

__all__ = ["ModelReference", "add_types", "with_instances"]

DEEPEST: Final = 8
"""The depth to which references are searched in lists, tuples and dicts."""


@dataclass(frozen=True)
class ModelReference:
    """A reference to a row: its model (`shop.order`), its primary key, and the alias of its database."""

    label: str
    pk: Any
    using: str | None = None

    def get(self) -> Model:
        """Read the instance; raise the model's DoesNotExist if it is gone."""
        model = apps.get_model(self.label)
        try:
            return model._base_manager.using(self.using).get(pk=self.pk)
        except model.DoesNotExist:
            raise model.DoesNotExist(f"{self.label} {self.pk!r} was deleted before the run started") from None


def add_types(book: TypeBook) -> None:
    """Allow model instances, `request.user` and lazy texts as arguments and results."""
    book.register(ModelReference)
    book.substitute(Model, _reference)
    book.substitute(LazyObject, _unwrapped)
    book.substitute(Promise, str)


def _reference(instance: Model) -> ModelReference:
    if instance.pk is None:
        raise ValueError("it is not saved yet, so a worker could not read it; save it first")
    return ModelReference(instance._meta.label_lower, instance.pk, instance._state.db)


def _unwrapped(value: Any) -> Any:
    if value._wrapped is empty:
        value._setup()
    return value._wrapped


def with_instances(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that receives instances in place of references."""
    func = getattr(func, "__mainspring_inner__", func)
    if iscoroutinefunction_partial(func):

        @functools.wraps(func)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            if _has_reference([*args, *kwargs.values()]):
                args, kwargs = await sync_to_async(_found)((args, kwargs))
            return await func(*args, **kwargs)

        return call_async

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _has_reference([*args, *kwargs.values()]):
            args, kwargs = _found((args, kwargs))
        return func(*args, **kwargs)

    return call


def _has_reference(value: Any, depth: int = 0) -> bool:
    if isinstance(value, ModelReference):
        return True
    if depth > DEEPEST or not isinstance(value, list | tuple | dict):
        return False
    return any(_has_reference(item, depth + 1) for item in (value.values() if isinstance(value, dict) else value))


def _found(value: Any, depth: int = 0) -> Any:
    if isinstance(value, ModelReference):
        return value.get()
    if depth > DEEPEST:
        return value
    if type(value) in (list, tuple):
        return type(value)(_found(item, depth + 1) for item in value)
    if type(value) is dict:
        return {key: _found(item, depth + 1) for key, item in value.items()}
    return value
