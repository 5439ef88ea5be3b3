"""Pack and restore dataclasses, NamedTuples, attrs classes and pydantic models field by field."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

from mainspring.codec.errors import FrameError, Reason
from mainspring.codec.values import UnsupportedValue

__all__ = ["a_kind", "full_name", "is_model", "layout", "read_object", "write_object"]


class Layout(NamedTuple):
    """The fields of a dataclass, NamedTuple, attrs class or pydantic model."""

    names: tuple[str, ...]
    defaults: dict[str, Callable[[], Any]]
    make: Callable[[type, dict[str, Any]], Any]


def full_name(cls: type) -> str:
    """Return a type's name as people would write it."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def a_kind(cls: type) -> str:
    """Return a type's name with its article."""
    name = full_name(cls)
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


def _find_layout(cls: type) -> Layout | None:
    if dataclasses.is_dataclass(cls) and _is_made_plainly(cls) and not issubclass(cls, Enum):
        fields = dataclasses.fields(cls)
        return Layout(tuple(field.name for field in fields), dict(_field_defaults(fields)), _make_dataclass)
    attributes = getattr(cls, "__attrs_attrs__", None)
    if attributes is not None and _is_made_plainly(cls):
        return Layout(tuple(each.name for each in attributes), dict(_attrs_defaults(attributes)), _make_dataclass)
    if is_model(cls) and hasattr(cls, "model_fields"):
        return _pydantic_layout(cls)
    names = getattr(cls, "_fields", None)
    if issubclass(cls, tuple) and isinstance(names, tuple) and all(isinstance(name, str) for name in names):
        defaults = getattr(cls, "_field_defaults", {})
        return Layout(names, {name: _constant(value) for name, value in defaults.items()}, _make_namedtuple)
    return None


def _is_made_plainly(cls: type[Any]) -> bool:
    return bool(cls.__new__ is object.__new__)  # type: ignore[comparison-overlap]


def _field_defaults(fields: Iterable[dataclasses.Field[Any]]) -> Iterator[tuple[str, Callable[[], Any]]]:
    for field in fields:
        if field.default_factory is not dataclasses.MISSING:
            yield field.name, field.default_factory
        elif field.default is not dataclasses.MISSING:
            yield field.name, _constant(field.default)


def _attrs_defaults(attributes: Iterable[Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    attr: Any = sys.modules["attr"]
    for each in attributes:
        if isinstance(each.default, attr.Factory):
            if not each.default.takes_self:
                yield each.name, each.default.factory
        elif each.default is not attr.NOTHING:
            yield each.name, _constant(each.default)


def is_model(cls: Any) -> bool:
    """Return True for a class that is a pydantic model."""
    # The code that made a model has imported pydantic; while another thread imports it, it may lack its names.
    model: Any = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return model is not None and isinstance(cls, type) and issubclass(cls, model)


def _pydantic_layout(cls: Any) -> Layout:
    """Return the fields of a pydantic model, and its other state."""
    fields: dict[str, Any] = dict(cls.model_fields)
    defaults: dict[str, Callable[[], Any]] = {
        name: partial(field.get_default, call_default_factory=True)
        for name, field in fields.items()
        if not field.is_required() and not getattr(field, "default_factory_takes_validated_data", False)
    }
    state = {
        "__pydantic_fields_set__": set[str],
        "__pydantic_extra__": _constant(None),
        "__pydantic_private__": _constant(None),
    }
    return Layout((*fields, *state), defaults | state, _make_dataclass)


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


layout: Callable[[type], Layout | None] = lru_cache(maxsize=1024)(_find_layout)
"""Return the layout of a type's instances; None if it has no known fields."""


def _make_dataclass(cls: type, values: dict[str, Any]) -> Any:
    # Like copying, skip __init__ and __post_init__: they ran when the object was made, and could now change it.
    made: Any = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(made, name, value)  # a frozen class refuses its own `__setattr__`
    return made


def _make_namedtuple(cls: type, values: dict[str, Any]) -> Any:
    return tuple.__new__(cls, values.values())


def write_object(value: Any, shape: Layout, ref: str) -> list[Any]:
    """Return the parts of an object with fields: the name of its type, then field names and values in turn."""
    cls = type(value)
    for name in _state(value):
        if name not in shape.names and not isinstance(getattr(cls, name, None), cached_property):
            raise UnsupportedValue(
                f"is {a_kind(cls)} with the attribute {name!r}, which is not a field and would be lost;"
                f" declare it, for instance as `{name}: ... = field(init=False)`"
            )
    try:
        values = value if isinstance(value, tuple) else [getattr(value, name) for name in shape.names]
        return [ref, *(part for pair in zip(shape.names, values, strict=True) for part in pair)]
    except (AttributeError, ValueError) as error:
        raise UnsupportedValue(f"is {a_kind(cls)} without a value for every field: {error}") from None


def _state(value: Any) -> Iterator[str]:
    """Yield the names of all instance attributes, also of those in slots."""
    state = object.__getstate__(value)
    for part in state if isinstance(state, tuple) else (state,):
        yield from part or ()


def read_object(cls: type, ref: str, items: list[Any]) -> Any:
    """Restore an object with fields; fields that the stored form lacks take their defaults."""
    shape = layout(cls)
    if shape is None:
        raise FrameError(
            Reason.MISSING_CODE, f"{ref!r} is not a dataclass, NamedTuple, attrs class or pydantic model here"
        )
    given = dict(zip(items[1::2], items[2::2], strict=True))
    if len(given) * 2 + 1 != len(items):
        raise FrameError(Reason.BAD_DATA, f"an object of {ref!r} has the same field twice")
    unknown = given.keys() - set(shape.names)
    if unknown:
        names = ", ".join(sorted(map(repr, unknown)))
        raise FrameError(Reason.MISSING_CODE, f"{ref!r} has no field {names} here; it may be newer elsewhere")
    missing = [name for name in shape.names if name not in given and name not in shape.defaults]
    if missing:
        raise FrameError(
            Reason.MISSING_CODE,
            f"{ref!r} now also has the field {missing[0]!r}, which needs a default to read old values",
        )
    values = {name: given[name] if name in given else shape.defaults[name]() for name in shape.names}
    return shape.make(cls, values)
