"""Send each column of a batch as one binary array, made in one pass.

psycopg dumps the items of a list one by one, which takes longer than packing the rows that they come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, repeat
from struct import Struct
from struct import error as StructError
from typing import Any, ClassVar, Final

from psycopg import Cursor, DataError
from psycopg.adapt import Dumper
from psycopg.pq import Format

__all__ = ["array", "learn_arrays"]

_NULL: Final = b"\xff\xff\xff\xff"
_HEAD: Final = Struct("!5i")


class _Texts(list[str | None]):
    pass


class _Bytes(list[bytes | None]):
    pass


class _Bigints(list[int | None]):
    pass


class _Integers(list[int | None]):
    pass


_ARRAYS: Final[dict[str, type[list[Any]]]] = {
    "text": _Texts, "bytea": _Bytes, "bigint": _Bigints, "integer": _Integers,
}  # fmt: skip


def array(kind: str, values: Iterable[Any]) -> list[Any]:
    """Return values as a list of a type; a cursor sends it as one array if `learn_arrays` has taught it to."""
    return _ARRAYS[kind](values)


def learn_arrays(cursor: Cursor[Any]) -> None:
    """Teach a cursor to send the lists of `array` as whole arrays; any other cursor sends them as usual lists."""
    for kind, dumper in _DUMPERS.items():
        cursor.adapters.register_dumper(kind, dumper)


class _BytesDumper(Dumper):
    format, oid = Format.BINARY, 1001
    item_oid: ClassVar[int] = 17

    def dump(self, obj: Sequence[Any]) -> bytes:
        items = self.encoded(obj)
        if None in items:
            parts = chain.from_iterable((_NULL,) if each is None else (_length(len(each)), each) for each in items)
        else:
            parts = chain.from_iterable(zip(map(_length, map(len, items)), items, strict=True))  # type: ignore[arg-type]
        return _head(len(items), self.item_oid, None in items) + b"".join(parts)

    def encoded(self, values: Sequence[Any]) -> Sequence[bytes | None]:
        """Return the bytes of each value, None for NULL."""
        return values


class _TextsDumper(_BytesDumper):
    oid, item_oid = 1009, 25

    def encoded(self, values: Sequence[Any]) -> Sequence[bytes | None]:
        encoding = "utf-8" if self.connection is None else self.connection.info.encoding
        return [None if each is None else each.encode(encoding) for each in values]


class _BigintsDumper(_BytesDumper):
    oid, item_oid = 1016, 20
    size: ClassVar[int] = 8

    def dump(self, obj: Sequence[Any]) -> bytes:
        try:
            if None in obj:
                return super().dump(obj)
            items = _numbers(len(obj), self.size).pack(*chain.from_iterable(zip(repeat(self.size), obj)))
        except (StructError, OverflowError) as error:
            raise DataError(f"a number is out of range: {error}") from None
        return _head(len(obj), self.item_oid, False) + items

    def encoded(self, values: Sequence[Any]) -> Sequence[bytes | None]:
        return [None if each is None else each.to_bytes(self.size, signed=True) for each in values]


class _IntegersDumper(_BigintsDumper):
    oid, item_oid, size = 1007, 23, 4


_DUMPERS: Final = {
    _Texts: _TextsDumper, _Bytes: _BytesDumper, _Bigints: _BigintsDumper, _Integers: _IntegersDumper,
}  # fmt: skip


def _head(count: int, item_oid: int, has_null: bool) -> bytes:
    """Return the head of an array that has one dimension and numbers its items from 1."""
    return _HEAD.pack(1, has_null, item_oid, count, 1)


@lru_cache(10_000)
def _length(size: int) -> bytes:
    return size.to_bytes(4)


@lru_cache(100)
def _numbers(count: int, size: int) -> Struct:
    return Struct("!" + ("iq" if size == 8 else "ii") * count)
