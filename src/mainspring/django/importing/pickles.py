"""Read pickles without creating the objects they name: the result is plain values and model references."""

from __future__ import annotations

import datetime
import decimal
import io
import pickle
import uuid
import zoneinfo
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from django.apps import apps

from mainspring.django.references import ModelReference

__all__ = ["UnreadableError", "function_name", "plain", "unpickled"]

MOST_BYTES: Final = 16 * 2**20
PLAIN: Final[dict[tuple[str, str], Any]] = {
    **{("datetime", name): getattr(datetime, name) for name in ("date", "datetime", "time", "timedelta", "timezone")},
    ("decimal", "Decimal"): decimal.Decimal,
    ("uuid", "UUID"): uuid.UUID,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("zoneinfo", "ZoneInfo._unpickle"): lambda key, from_cache=True: zoneinfo.ZoneInfo(key),
}
"""The types that are created; creating one runs no code of the project."""
INSTANCE: Final = "django.db.models.base:model_unpickle"


class UnreadableError(ValueError):
    """A value that cannot be taken over; the message says where it is."""


class _Named:
    """A stand-in for any class in a pickle: it records the arguments, and creates nothing."""

    reference: ClassVar[str] = ""
    args: tuple[Any, ...] = ()
    state: Any = None

    def __new__(cls, *args: Any, **kwargs: Any) -> _Named:
        made = object.__new__(cls)
        made.args = args
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Accept any arguments."""

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        """Discard an item."""

    def append(self, value: Any) -> None:
        """Discard an item."""

    extend = add = append


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return a plain type, or a stand-in for the name; import nothing."""
        return PLAIN.get((module, name)) or type("Named", (_Named,), {"reference": f"{module}:{name}"})


def unpickled(data: bytes) -> Any:
    """Return the content of a pickle, with stand-ins for objects of other than plain types."""
    if len(data) > MOST_BYTES:
        raise UnreadableError(f"it has {len(data):,} bytes")
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except UnreadableError:
        raise
    except Exception as error:  # bytes from an unknown source can raise anything
        raise UnreadableError(f"it is not a pickle that can be read: {type(error).__name__}: {error}") from error


def function_name(value: Any) -> str:
    """Return the name of a function, given as text or as named in a pickle."""
    if isinstance(value, str):
        return value
    if isinstance(value, type) and issubclass(value, _Named):
        return value.reference
    raise UnreadableError(f"its function is {_described(value)}")


def plain(value: Any, where: str) -> Any:
    """Return a value that can be stored; raise UnreadableError if it contains other types."""
    if isinstance(value, _Named) and value.reference == INSTANCE:
        return _reference(value, where)
    if isinstance(value, _Named) or (isinstance(value, type) and issubclass(value, _Named)):
        raise UnreadableError(f"{where} is {_described(value)}")
    if isinstance(value, Mapping):
        return {plain(key, where): plain(each, f"{where}[{key!r}]") for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(plain(each, f"{where}[{number}]") for number, each in enumerate(value))
    return value


def _described(value: Any) -> str:
    if isinstance(value, _Named):
        return f"a {value.reference.replace(':', '.')}"
    return value.reference if isinstance(value, type) and issubclass(value, _Named) else f"a {type(value).__name__}"


def _reference(value: _Named, where: str) -> ModelReference:
    """Return a model instance as a reference by label and key."""
    try:
        app_label, name = value.args[0]
        model = apps.get_model(app_label, name)
        pk = value.state[model._meta.pk.attname]
    except (LookupError, TypeError, ValueError) as error:
        raise UnreadableError(f"{where} is a model instance that cannot be found here: {error}") from error
    return ModelReference(model._meta.label_lower, pk)
