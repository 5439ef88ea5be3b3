"""Pack values as MessagePack: with the fast packer if its result can be trusted, else with a careful walk."""

from __future__ import annotations

from dataclasses import is_dataclass
from enum import Enum
from typing import Any, Final

import ormsgpack

from mainspring.codec.containers import as_builtin, builtin_of, check_keys, write_container
from mainspring.codec.errors import EncodeError
from mainspring.codec.layouts import a_kind, full_name, layout, write_object
from mainspring.codec.types import Hooks, TypeBook, dump_custom, write_enum
from mainspring.codec.values import ATOMS, MAX_DEPTH, OTHER_BYTES, Code, UnsupportedValue
from mainspring.errors import RunTimeout

__all__ = ["Packer", "pack_plain"]

_OPTIONS: Final = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)

_PLAIN: Final = frozenset([type(None), bool, float, bytes])
_LEAVES: Final = _PLAIN | ATOMS.keys()
_GROUPS: Final = frozenset([list, dict, tuple, set, frozenset])
_HOOK_DEPTH: Final = 16

Path = tuple[Any, ...]  # linked from the inside out: (outer path, kind of step, step)


def pack_plain(value: Any) -> bytes | None:
    """Pack a value that has only MessagePack's own types; return None for any other, which needs the `Packer`."""
    try:
        data = ormsgpack.packb(value, None, _OPTIONS)
    except Exception:
        return None
    return data if _is_unsuspicious(data) or _is_known(value) else None


def _is_unsuspicious(data: bytes) -> bool:
    # The fast packer silently packs bytearray and memoryview as bytes, and has another limit of depth. So check the
    # value if the result may contain binary data or many containers.
    if 0xC4 in data or 0xC5 in data or 0xC6 in data:
        return False
    return len(data) <= MAX_DEPTH or len(data.translate(None, OTHER_BYTES)) <= MAX_DEPTH


class Packer:
    """A packer for one value; `pickled` says whether a part of it had to be pickled."""

    __slots__ = ("_book", "_inputs", "_interrupt", "_left", "_nested", "_pickles", "pickled")

    def __init__(self, book: TypeBook, *, pickles: bool, inputs: int = 0) -> None:
        self._book = book
        self._pickles = pickles
        self._inputs = self._left = inputs
        """The number of placeholders that the value may hold, and how many of them are left."""
        self._nested = 0
        self._interrupt: BaseException | None = None
        self.pickled = False

    def pack(self, value: Any) -> bytes:
        """Return a value as MessagePack; raise EncodeError with the part that cannot be stored."""
        try:
            data = ormsgpack.packb(value, self._hook, _OPTIONS)
        except Exception:  # the fast packer does not say where it failed; the walk does
            if self._interrupt is not None:
                raise self._interrupt from None
        else:
            if _is_unsuspicious(data) or _is_known(value):
                return data
        self.pickled, self._left = False, self._inputs
        return ormsgpack.packb(self._walk(value, (), 0), None, _OPTIONS)

    # -- at speed --------------------------------------------------------------------------------------------------

    def _hook(self, value: Any) -> Any:
        try:
            code, body = self._take_apart(value)
            if code is None:
                return body
            if isinstance(body, list):
                self._nested += 1
                if self._nested > _HOOK_DEPTH:
                    raise UnsupportedValue("is nested too deep for the fast way")
                body = ormsgpack.packb(body, self._hook, _OPTIONS)
                self._nested -= 1
            return ormsgpack.Ext(code, body)
        except BaseException as error:
            # The fast packer swallows errors of hooks. Keep an interrupt from another thread, which must not be lost.
            if isinstance(error, RunTimeout) or not isinstance(error, Exception):
                self._interrupt = error
            raise

    # -- with care -------------------------------------------------------------------------------------------------

    def _walk(self, value: Any, path: Path, depth: int) -> Any:
        """Convert a value to types that the fast packer takes unchanged."""
        cls = type(value)
        if cls in _PLAIN:
            return value
        if cls is str:
            return value if _is_utf8(value) else ormsgpack.Ext(Code.STR, ATOMS[str][1](value))
        if cls is int and -(2**63) <= value < 2**64:
            return value
        if cls is list:
            depth = _deeper(value, path, depth)
            return [self._walk(item, (path, "[]", at), depth) for at, item in enumerate(value)]
        if cls is dict and all(type(key) is str and _is_utf8(key) for key in value):
            depth = _deeper(value, path, depth)
            return {key: self._walk(item, (path, ".", key), depth) for key, item in value.items()}
        try:
            code, body = self._take_apart(value)
        except UnsupportedValue as problem:
            raise EncodeError(_shown(path), full_name(cls), str(problem)) from problem.__cause__
        if code is None:
            return self._walk(body, path, depth)
        if isinstance(body, list):
            depth = _deeper(value, path, depth)
            items = [self._walk(item, _step(path, code, body, at), depth) for at, item in enumerate(body)]
            body = ormsgpack.packb(items, None, _OPTIONS)
        return ormsgpack.Ext(code, body)

    # -- for both --------------------------------------------------------------------------------------------------

    def _take_apart(self, value: Any) -> tuple[int | None, Any]:
        """Return the extension code of a value and its body: bytes, or the items of an array to pack.

        Without a code, the body is the value as its base type.
        """
        cls = type(value)
        if cls is tuple:
            return Code.TUPLE, list(value)
        atom = ATOMS.get(cls)
        try:
            if atom is not None:
                if atom[0] == Code.PLACEHOLDER:
                    self._left -= 1
                    if self._left < 0:
                        raise UnsupportedValue(_STRAY_PLACEHOLDER)
                return atom[0], atom[1](value)
            if cls is dict:
                check_keys(value)
                return Code.DICT, [part for pair in value.items() for part in pair]
            if cls is set or cls is frozenset:
                check_keys(value)
                return Code.SET if cls is set else Code.FROZENSET, list(value)
            hooks = self._book.hooks(cls)
            if hooks is not None:
                return Code.CUSTOM, [self._book.ref(cls), dump_custom(value, hooks)]
            make = self._book.substitution(cls)
            if make is not None:
                return None, dump_custom(value, Hooks(make, make))
            if issubclass(cls, Enum):
                return Code.ENUM, write_enum(value, self._book.ref(cls))
            shape = layout(cls)
            if shape is not None:
                return Code.OBJECT, write_object(value, shape, self._book.ref(cls))
            container = write_container(value, cls)
            if container is not None:
                return container
            base = builtin_of(cls)
            # The base type loses the subclass, which a pickle would keep, and the fields of a dataclass.
            if base is None or base is cls or self._pickles or is_dataclass(cls):
                raise UnsupportedValue(_why_not(cls))
            return None, as_builtin(value, base)
        except UnsupportedValue:
            if not self._pickles or (atom is not None and atom[0] == Code.PLACEHOLDER):
                raise
            return Code.PICKLE, self._pickle(value)

    def _pickle(self, value: Any) -> bytes:
        import pickle

        self.pickled = True
        try:
            return pickle.dumps(value, protocol=5)
        except RunTimeout:
            raise
        except Exception as error:
            raise UnsupportedValue(f"is {a_kind(type(value))}, which cannot be pickled: {str(error)[:200]}") from error


def _is_known(value: Any) -> bool:
    """Return True if a value has only well-known types on every level and is not nested too deep."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        kinds = set(map(type, level))
        if kinds <= _LEAVES:
            return True
        if not kinds <= _LEAVES | _GROUPS:
            return False
        groups = [group for group in level if type(group) in _GROUPS]
        level = [item for group in groups for item in (group.values() if type(group) is dict else group)]
    return False


def _is_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _deeper(value: Any, path: Path, depth: int) -> int:
    if depth >= MAX_DEPTH:
        problem = f"is nested deeper than {MAX_DEPTH} levels; does it contain itself?"
        raise EncodeError(_shown(path), full_name(type(value)), problem)
    return depth + 1


_STRAY_PLACEHOLDER: Final = (
    "stands for the result of a run; it can only be an argument of an enqueued call, alone or inside lists, tuples and"
    " dicts"
)
_HOLDERS: Final = frozenset({"mainspring.schedulers.base", "mainspring.app.app", "mainspring.jobstores.base"})
"""The modules of the classes of schedulers, apps and stores."""


def _why_not(cls: type) -> str:
    it = a_kind(cls)
    if cls is bytearray or cls is memoryview:
        return f"is {it}, which would come back as bytes; pass bytes(...)"
    base = builtin_of(cls)
    if base is not None:
        return f"is {it}, a dataclass and a kind of {base.__name__}, whose fields would be lost; make it one of the two"
    if any(base.__module__ in _HOLDERS for base in cls.__mro__):
        return (
            f"is {it}, which lives in this process only and cannot be stored; keep it in a variable of a module"
            " and use that inside the function"
        )
    return (
        f"is {it}, which cannot be stored; use plain values, a dataclass or an id to look it up by, say how to store"
        " it (register_type), or allow pickle: allow_pickle=True and secret_key=... in BackgroundScheduler(...) or"
        " Mainspring(...)"
    )


def _step(path: Path, code: int, items: list[Any], at: int) -> Path:
    if code in (Code.DICT, Code.ORDERED_DICT):
        return (path, "." if at % 2 else "key", items[at - at % 2])
    if code == Code.DEFAULT_DICT:  # the first item is its factory
        return (path, "key" if at % 2 else ".", items[at if at % 2 else at - 1])
    if code == Code.CUSTOM:  # the user's hook has changed its structure
        return path
    if code == Code.DEQUE:  # the first item is its maximum length
        return (path, "[]", at - 1)
    if code == Code.OBJECT:
        return (path, ".", items[at - 1])
    return (path, "[]" if code == Code.TUPLE else "item", at if code == Code.TUPLE else items[at])


def _shown(path: Path) -> str:
    """Write a path as Python would: `kwargs.user['full name'][0]`."""
    steps: list[str] = []
    while path:
        path, kind, step = path
        if kind == "." and isinstance(step, str) and step.isidentifier():
            steps.append(f".{step}")
        elif kind in (".", "[]"):
            steps.append(f"[{_brief(step)}]")
        else:
            steps.append(f".key({_brief(step)})" if kind == "key" else f".item({_brief(step)})")
    text = "".join(reversed(steps)).removeprefix(".")
    return text if len(text) <= 300 else f"{text[:150]}...{text[-100:]}"


def _brief(step: object) -> str:
    try:
        text = repr(step)
    except Exception:  # a user's __repr__
        text = type(step).__name__
    return text if len(text) <= 60 else text[:57] + "..."
