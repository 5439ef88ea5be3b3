"""Unpack MessagePack into values. An attacker may have written any of the extensions."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from typing import Any, Final

import ormsgpack

from mainspring.codec.containers import read_deque, read_factory
from mainspring.codec.errors import FrameError, Reason
from mainspring.codec.layouts import read_object
from mainspring.codec.types import TypeBook, load_custom, read_enum
from mainspring.codec.values import COMPOUNDS, MAX_DEPTH, READERS, Code, begins_array
from mainspring.errors import RunTimeout

__all__ = ["NOT_PLAIN", "Unpacker", "unpack_plain"]

_DICTS: Final = {Code.DICT: dict, Code.ORDERED_DICT: OrderedDict, Code.DEFAULT_DICT: defaultdict}
_MANY_KEYS: Final = 100
_MOST_KEYS_PER_HASH: Final = 8
"""The most keys that may share a hash on average; for normal keys it is one."""
NOT_PLAIN: Final = object()


def unpack_plain(data: bytes) -> Any:
    """Return the value of a document without extensions; NOT_PLAIN for any other, which needs the `Unpacker`."""
    try:
        return ormsgpack.unpackb(data)
    except Exception:
        return NOT_PLAIN


class Unpacker:
    """An unpacker for one document."""

    __slots__ = ("_book", "_failure", "_nested", "_signed", "_unpickles")

    def __init__(self, book: TypeBook, *, signed: bool, unpickles: bool) -> None:
        self._book = book
        self._signed = signed
        self._unpickles = unpickles
        self._nested = 0
        self._failure: BaseException | None = None

    def unpack(self, data: bytes) -> Any:
        """Return the value of a document; pass on the error of the parser or of our hook."""
        try:
            return ormsgpack.unpackb(data, ext_hook=self._hook)
        except Exception as error:
            # The parser hides the error that a hook raised.
            raise self._failure or error from None

    def _hook(self, code: int, body: bytes) -> Any:
        try:
            reader = READERS.get(code)
            if reader is not None:
                return reader(body)
            if code in COMPOUNDS:
                return self._compound(code, self._items(body))
            if code == Code.ENUM:
                return read_enum(body, self._book.find)
            if code == Code.PICKLE:
                return self._unpickle(body)
            raise FrameError(Reason.BAD_DATA, f"the extension code {code} is unknown here")
        except BaseException as error:
            if self._failure is None:
                self._failure = error
            raise

    def _items(self, body: bytes) -> list[Any]:
        # Require an array: extensions directly inside extensions could be nested without a limit.
        if not begins_array(body):
            raise FrameError(Reason.BAD_DATA, "an extension that should hold an array holds something else")
        self._nested += 1
        if self._nested > MAX_DEPTH:
            raise FrameError(Reason.BAD_DATA, f"nested deeper than {MAX_DEPTH} levels")
        items: list[Any] = ormsgpack.unpackb(body, ext_hook=self._hook)
        self._nested -= 1
        return items

    def _compound(self, code: int, items: list[Any]) -> Any:
        if code == Code.TUPLE:
            return tuple(items)
        if code == Code.OBJECT:
            if not items or not all(isinstance(name, str) for name in [items[0], *items[1::2]]):
                raise FrameError(Reason.BAD_DATA, "an object without the name of its type or of a field")
            return read_object(self._book.find(items[0]), items[0], items)
        if code == Code.CUSTOM:
            return load_custom(self._book, items)
        if code == Code.DEQUE:
            return read_deque(items)
        if code in _DICTS:
            made: Any = defaultdict(read_factory(items.pop(0))) if code == Code.DEFAULT_DICT else _DICTS[code]()
            keys = items[::2]
            self._check_hashes(keys)
            made.update(zip(keys, items[1::2], strict=True))
        else:
            keys = items
            self._check_hashes(keys)
            made = set(keys) if code == Code.SET else frozenset(keys)
        if len(made) != len(keys):
            raise FrameError(Reason.BAD_DATA, "the same key or element twice")
        return made

    def _check_hashes(self, keys: list[Any]) -> None:
        """Refuse keys that were chosen to collide: a few thousand of them would keep a dict busy for minutes."""
        if self._signed or len(keys) <= _MANY_KEYS or len(set(map(hash, keys))) == len(keys):
            return
        # The sum is about the number of comparisons for inserting them.
        if sum(times * times for times in Counter(map(hash, keys)).values()) > _MOST_KEYS_PER_HASH * len(keys):
            raise FrameError(Reason.BAD_DATA, "too many keys or elements have the same hash")

    def _unpickle(self, body: bytes) -> Any:
        if not self._unpickles:
            raise FrameError(Reason.NOT_ALLOWED, "holds a pickle, and this frame may not")
        import pickle

        try:
            return pickle.loads(body)
        except RunTimeout:
            raise
        except (ImportError, AttributeError) as error:
            raise FrameError(Reason.MISSING_CODE, f"cannot be unpickled here: {str(error)[:200]}") from None
        except (Exception, SystemExit) as error:
            raise FrameError(
                Reason.BAD_DATA, f"cannot be unpickled: {type(error).__name__}: {str(error)[:200]}"
            ) from None
