"""The types that values may have: their names, who may use them, and how to store a user's type."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, Flag
from functools import lru_cache
from typing import Any, NamedTuple

from mainspring.codec.errors import FrameError, Reason
from mainspring.codec.layouts import a_kind, layout
from mainspring.codec.values import UnsupportedValue
from mainspring.core.references import obj_to_ref, ref_to_obj
from mainspring.errors import CallableReferenceError, ConfigurationError, RunTimeout, near

__all__ = ["Hooks", "TypeBook", "dump_custom", "load_custom", "read_enum", "write_enum"]


def write_enum(member: Enum, ref: str) -> bytes:
    """Write a member of an Enum by its name, or by its number if it is a combination of flags."""
    if type(member).__members__.get(member._name_ or "") is member:
        text = f"{ref}={member._name_}"
    elif isinstance(member, Flag):
        text = f"{ref}#{member._value_}"
    else:
        raise UnsupportedValue(f"is {member!r}, which is not among the members of its Enum")
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
    if flags is None or flags._value_ != number:  # a Flag with boundary CONFORM drops unknown bits
        raise FrameError(Reason.MISSING_CODE, f"{ref!r} has no flags for {number} here")
    return flags


class Hooks(NamedTuple):
    """The functions that store a user's type: `dump` turns a value into a storable one, and `load` turns that back."""

    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


def dump_custom(value: Any, hooks: Hooks) -> Any:
    """Call a user's `dump` for a value."""
    try:
        return hooks.dump(value)
    except RunTimeout:
        raise
    except Exception as error:
        problem = f"is {a_kind(type(value))}, whose dump= raised {type(error).__name__}: {str(error)[:200]}"
        raise UnsupportedValue(problem) from error


def load_custom(book: TypeBook, items: list[Any]) -> Any:
    """Call a user's `load` for a value."""
    if len(items) != 2 or not isinstance(items[0], str):
        raise FrameError(Reason.BAD_DATA, "an object without the name of its type")
    ref, value = items
    hooks = book.hooks(book.find(ref))
    if hooks is None:
        raise FrameError(
            Reason.MISSING_CODE, f"nobody said here how to load {ref[:200]!r}; register it, as its writer did"
        )
    return hooks.load(value)


class TypeBook:
    """The types that values may have: registered ones, and, in signed frames, any type that can be imported."""

    __slots__ = ("_by_ref", "_hooks", "_imports", "_substitutes")

    def __init__(self, types: Iterable[type] | TypeBook, *, imports: bool) -> None:
        shared = types if isinstance(types, TypeBook) else None  # share its dicts: its owner may register more types
        self._by_ref: dict[str, type] = {} if shared is None else shared._by_ref
        self._hooks: dict[type, Hooks] = {} if shared is None else shared._hooks
        self._substitutes: dict[type, Callable[[Any], Any]] = {} if shared is None else shared._substitutes
        self._imports = imports
        for cls in () if isinstance(types, TypeBook) else types:
            self.register(cls)

    def register(
        self, cls: type, dump: Callable[[Any], Any] | None = None, load: Callable[[Any], Any] | None = None
    ) -> None:
        """Allow a type by name; a type without known fields needs `dump` and `load`."""
        if not isinstance(cls, type):
            raise ConfigurationError(f"only types can be registered, not {cls!r}")
        if (dump is None) != (load is None):
            raise ConfigurationError("dump= and load= belong together: one undoes what the other does")
        hooks = None if dump is None or load is None else Hooks(dump, load)
        if hooks is None and not (issubclass(cls, Enum) or layout(cls)):
            raise ConfigurationError(
                f"{cls!r} is no Enum, dataclass, NamedTuple, attrs class or pydantic model: say how to store it,"
                " register_type(cls, dump=..., load=...)"
            )
        ref = _own_ref(cls)
        other = self._by_ref.setdefault(ref, cls)
        if other is not cls:
            raise ConfigurationError(f"another type is registered as {ref!r} already; give one of them another name")
        if hooks is not None:
            self._hooks[cls] = hooks

    def substitute(self, base: type, make: Callable[[Any], Any]) -> None:
        """Store another value, which `make` returns, in place of each value of this type and of its subclasses."""
        self._substitutes[base] = make

    def substitution(self, cls: type) -> Callable[[Any], Any] | None:
        """Return the function that makes the value to store in place of one of this type."""
        return next((make for base, make in self._substitutes.items() if issubclass(cls, base)), None)

    def hooks(self, cls: type) -> Hooks | None:
        """Return the functions that a type was registered with."""
        return self._hooks.get(cls)

    def ref(self, cls: type) -> str:
        """Return the name by which a reader will find a type, or raise UnsupportedValue."""
        own = _own_ref(cls)
        if self._by_ref.get(own) is cls:
            return own
        if not self._imports:
            raise UnsupportedValue(
                f"is {a_kind(cls)}, which without a key is restored only if registered: pass"
                f" types=[{cls.__name__}] to the scheduler (BackgroundScheduler(types=[{cls.__name__}])) or call"
                f" register({cls.__name__}) of the codec, both where it is written and read"
            )
        try:
            return _checked_ref(cls)
        except (CallableReferenceError, LookupError) as error:
            raise UnsupportedValue(f"is {a_kind(cls)}, whose type cannot be found by name: {error}") from None

    def find(self, ref: str) -> type:
        """Return the type with this name; import it only if this book may."""
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
        except (Exception, SystemExit) as error:  # importing executes a module, which may raise anything
            why = str(error)[:400] or type(error).__name__
            raise FrameError(Reason.MISSING_CODE, f"the type {ref[:200]!r} cannot be imported here: {why}") from None
        if not isinstance(found, type):
            raise FrameError(Reason.NOT_ALLOWED, f"{ref[:200]!r} is not a type, and only types may be named in a value")
        return found


def _own_ref(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


_checked_ref = lru_cache(maxsize=1024)(obj_to_ref)
