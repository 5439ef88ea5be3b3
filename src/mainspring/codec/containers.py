"""Store the standard library's containers, and subclasses of built-in types as their base types."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final

from mainspring.codec.errors import FrameError, Reason
from mainspring.codec.values import Code, UnsupportedValue

__all__ = ["as_builtin", "builtin_of", "check_keys", "read_deque", "read_factory", "write_container"]

_FACTORIES: Final[dict[str, type]] = {
    kind.__name__: kind for kind in (bool, bytes, dict, float, frozenset, int, list, set, str, tuple)
}
"""The factories that a stored defaultdict may have."""

# Copy with the methods of the built-in type: a subclass may have changed str(), int() or iteration.
_COPIES: Final[dict[type, Callable[[Any], Any]]] = {
    OrderedDict: lambda value: OrderedDict(OrderedDict.items(value)),
    defaultdict: lambda value: defaultdict(value.default_factory, dict.items(value)),
    deque: lambda value: deque(deque.__iter__(value), value.maxlen),
    str: str.__str__,
    bytes: lambda value: bytes(memoryview(value)),
    int: int.__int__,
    float: float.__float__,
    list: lambda value: list(list.__iter__(value)),
    dict: lambda value: dict(dict.items(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}

_KEPT: Final = {*_COPIES, bool}


def builtin_of(cls: type) -> type | None:
    """Return the built-in type or container that a class derives from."""
    return next((base for base in _COPIES if issubclass(cls, base)), None)


def as_builtin(value: Any, base: type) -> Any:
    """Convert an object of a subclass to its built-in type."""
    return _COPIES[base](value)


def check_keys(keys: Iterable[Any]) -> None:
    """Refuse keys or elements that differ only by the comparison of a subclass: they would be equal when restored."""
    bases = {cls: builtin_of(cls) for cls in {type(key) for key in keys} - _KEPT if not issubclass(cls, Enum)}
    if not any(bases.values()):
        return
    plain = [key if (base := bases.get(type(key))) is None else as_builtin(key, base) for key in keys]
    if len(set(plain)) != len(plain):
        raise UnsupportedValue("has keys or elements that differ here, but would be equal when they come back")


def write_container(value: Any, cls: type) -> tuple[int, list[Any]] | None:
    """Return the extension code of a standard container, and the items to pack as an array."""
    if cls is OrderedDict:
        return Code.ORDERED_DICT, [part for pair in value.items() for part in pair]
    if cls is deque:
        return Code.DEQUE, [value.maxlen, *value]
    if cls is not defaultdict:
        return None
    factory = value.default_factory
    name = getattr(factory, "__name__", "") if factory is not None else None
    if name is not None and _FACTORIES.get(name) is not factory:
        raise UnsupportedValue(
            f"is a collections.defaultdict that calls {factory!r}, which has no name here; it may call"
            f" {', '.join(_FACTORIES)}, or pass dict(...)"
        )
    return Code.DEFAULT_DICT, [name, *(part for pair in value.items() for part in pair)]


def read_factory(name: Any) -> type | None:
    """Return the factory of a stored defaultdict."""
    if name is None:
        return None
    if not isinstance(name, str) or name not in _FACTORIES:
        raise FrameError(Reason.BAD_DATA, "a defaultdict that calls something unknown")
    return _FACTORIES[name]


def read_deque(items: list[Any]) -> deque[Any]:
    """Restore a deque."""
    if not items or (items[0] is not None and (type(items[0]) is not int or items[0] < len(items) - 1)):
        raise FrameError(Reason.BAD_DATA, "a deque whose length does not fit")
    return deque(items[1:], items[0])
