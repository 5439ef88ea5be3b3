"""Enum, dataclass and NamedTuple types: how each is taken apart, by which name it is known, and who may name it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, Flag
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from mainspring.codec.errors import FrameError, Reason
from mainspring.codec.values import Unsupported
from mainspring.core.references import obj_to_ref, ref_to_obj
from mainspring.errors import CallableReferenceError, ConfigurationError, RunTimeout, near

__all__ = ["TypeBook", "a_kind", "full_name", "layout", "read_enum", "read_object", "write_enum", "write_object"]


class Layout(NamedTuple):
    """What the instances of a dataclass or NamedTuple consist of."""

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
    if dataclasses.is_dataclass(cls) and cls.__new__ is object.__new__ and not issubclass(cls, Enum):
        fields = dataclasses.fields(cls)
        return Layout(tuple(field.name for field in fields), dict(_field_defaults(fields)), _make_dataclass)
    names = getattr(cls, "_fields", None)
    if issubclass(cls, tuple) and isinstance(names, tuple) and all(isinstance(name, str) for name in names):
        defaults = getattr(cls, "_field_defaults", {})
        return Layout(names, {name: _constant(value) for name, value in defaults.items()}, _make_namedtuple)
    return None


def _field_defaults(fields: Iterable[dataclasses.Field[Any]]) -> Iterator[tuple[str, Callable[[], Any]]]:
    for field in fields:
        if field.default_factory is not dataclasses.MISSING:
            yield field.name, field.default_factory
        elif field.default is not dataclasses.MISSING:
            yield field.name, _constant(field.default)


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


layout: Callable[[type], Layout | None] = lru_cache(maxsize=1024)(_find_layout)
"""Return how instances of a type are taken apart, or None if it is no dataclass or NamedTuple."""


def _make_dataclass(cls: type, values: dict[str, Any]) -> Any:
    # As copying does: __init__ and __post_init__ ran when the object was made; a second pass could change it.
    made: Any = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(made, name, value)  # a frozen one refuses its own
    return made


def _make_namedtuple(cls: type, values: dict[str, Any]) -> Any:
    return tuple.__new__(cls, values.values())


def write_object(value: Any, shape: Layout, ref: str) -> list[Any]:
    """Take a dataclass or NamedTuple apart: its type's name, then names and values by turns."""
    cls = type(value)
    for name in _state(value):
        if name not in shape.names and not isinstance(getattr(cls, name, None), cached_property):
            raise Unsupported(
                f"is {a_kind(cls)} with the attribute {name!r}, which is no field and would be lost;"
                f" declare it, for instance as `{name}: ... = field(init=False)`"
            )
    try:
        values = value if isinstance(value, tuple) else [getattr(value, name) for name in shape.names]
        return [ref, *(part for pair in zip(shape.names, values, strict=True) for part in pair)]
    except (AttributeError, ValueError) as error:
        raise Unsupported(f"is {a_kind(cls)} without a value for every field: {error}") from None


def _state(value: Any) -> Iterator[str]:
    """Yield the names of all instance attributes, also of those in slots."""
    state = object.__getstate__(value)
    for part in state if isinstance(state, tuple) else (state,):
        yield from part or ()


def read_object(cls: type, ref: str, items: list[Any]) -> Any:
    """Put a dataclass or NamedTuple together again, new fields taking their defaults."""
    shape = layout(cls)
    if shape is None:
        raise FrameError(Reason.MISSING_CODE, f"{ref!r} is no dataclass or NamedTuple here")
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


def write_enum(member: Enum, ref: str) -> bytes:
    """Name a member of an Enum: by its name, or by its number if it is a combination of flags."""
    if type(member).__members__.get(member._name_ or "") is member:
        text = f"{ref}={member._name_}"
    elif isinstance(member, Flag):
        text = f"{ref}#{member._value_}"
    else:
        raise Unsupported(f"is {member!r}, which is not among the members of its Enum")
    return text.encode("utf-8", "surrogatepass")


def read_enum(body: bytes, find: Callable[[str], type]) -> Enum:
    """Find the member of an Enum that a body names."""
    text = body.decode("utf-8", "surrogatepass")
    ref, by_name, name = text.partition("=")
    if not by_name:
        ref, _, number = text.partition("#")
    cls = find(ref)
    if not issubclass(cls, Enum):
        raise FrameError(Reason.MISSING_CODE, f"{ref!r} is no Enum here")
    if not by_name:
        return _flags(cls, ref, int(number))
    try:
        return cls.__members__[name]
    except KeyError:
        raise FrameError(
            Reason.MISSING_CODE, f"{ref!r} has no member {name[:80]!r} here{near(name[:80], cls.__members__)}"
        ) from None


def _flags(cls: type[Enum], ref: str, number: int) -> Enum:
    if not issubclass(cls, Flag):
        raise FrameError(Reason.MISSING_CODE, f"{ref!r} is no Flag here")
    try:
        flags = cls(number)
    except ValueError:
        flags = None
    if flags is None or flags._value_ != number:  # a Flag that conforms drops the bits it does not know
        raise FrameError(Reason.MISSING_CODE, f"{ref!r} has no flags for {number} here")
    return flags


class TypeBook:
    """The types that values may have: those registered, and under a signature any that can be imported."""

    __slots__ = ("_by_ref", "_imports")

    def __init__(self, types: Iterable[type], *, imports: bool) -> None:
        self._by_ref: dict[str, type] = {}
        self._imports = imports
        for cls in types:
            self.register(cls)

    def register(self, cls: type) -> None:
        """Allow a type by name."""
        if not isinstance(cls, type) or not (issubclass(cls, Enum) or layout(cls)):
            raise ConfigurationError(f"only Enum, dataclass and NamedTuple types can be registered, not {cls!r}")
        ref = _own_ref(cls)
        other = self._by_ref.setdefault(ref, cls)
        if other is not cls:
            raise ConfigurationError(f"another type is registered as {ref!r} already; give one of them another name")

    def ref(self, cls: type) -> str:
        """Return the name under which a reader will find a type, or raise Unsupported."""
        own = _own_ref(cls)
        if self._by_ref.get(own) is cls:
            return own
        if not self._imports:
            raise Unsupported(
                f"is {a_kind(cls)}, which without a key is restored only if registered: pass"
                f" types=[{cls.__name__}] or call register({cls.__name__}), both where it is written and read"
            )
        try:
            return _checked_ref(cls)
        except (CallableReferenceError, LookupError) as error:
            raise Unsupported(f"is {a_kind(cls)}, whose type cannot be found by name: {error}") from None

    def find(self, ref: str) -> type:
        """Return the type of a name; import it only if this book may."""
        found = self._by_ref.get(ref)
        if found is not None:
            return found
        if not self._imports:
            name = ref.rpartition(":")[2][:80]
            raise FrameError(
                Reason.NOT_ALLOWED,
                f"the type {ref[:200]!r} is not registered, and without a signature no other is restored: pass"
                f" types=[{name}], call register({name}), or set a key{near(ref[:200], self._by_ref)}",
            )
        try:
            found = ref_to_obj(ref)
        except RunTimeout:
            raise
        except (Exception, SystemExit) as error:  # an import runs a module, which may raise anything
            why = str(error)[:400] or type(error).__name__
            raise FrameError(Reason.MISSING_CODE, f"the type {ref[:200]!r} cannot be imported here: {why}") from None
        if not isinstance(found, type):
            raise FrameError(Reason.NOT_ALLOWED, f"{ref[:200]!r} is no type, and only types may be named in a value")
        return found


def _own_ref(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


_checked_ref = lru_cache(maxsize=1024)(obj_to_ref)
