"""MessagePack documents as nobody's packer writes them: every type in every width, extensions right and wrong."""

from __future__ import annotations

import pickle
import random
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from datetime import time as time_of_day
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from mainspring.codec import Codec
from mainspring.codec.values import ATOMS, Code
from tests.codec.shapes import JOB, KEYRING, Access, Color, Money, Point, Touch

HERE: Final = "tests.codec.shapes"
VALUES: Final[list[Any]] = [
    {"args": (1, "two", 3.5), "kwargs": {"a": None, "b": [True, {"c": b"\x00\xff"}]}},
    [datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 10, 25, 2, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))],
    [date(2026, 2, 28), timedelta(days=-1, microseconds=5), Decimal("-1.50"), UUID(int=5), 2**80, "half \ud800"],
    {1: Color.RED, (2, 3): Money(Decimal(4)), "p": Point(1.0), None: frozenset([2**70]), "s": {6, 7}},
    [Access.READ | Access.WRITE, {"deep": [[[({"er": ((), [], {})},)]]]}],
    [{"id": n, "name": f"item {n}", "tags": ("a", "b")} for n in range(20)],
]

TEXTS: Final = ["", "a", "amount", "currency", "x", "y", "__class__", "\u2603" * 5, "z" * 40, "2026-01-01", "../../x"]
MOMENTS: Final = [
    "2026-01-01",
    "2026-01-01T00:00:00",
    "2026-10-25T02:30:00~@Europe/Berlin",
    "2026-01-01T00:00+01:00=CET",
    "2026-01-01T00:00=no offset",
    "2026-01-01T00:00@Europe",
    "2026-01-01T00:00@../../../../etc/passwd",
    "2026-01-01T00:00@\0",
    "2026-W01-1",
    "9999-12-31T23:59:59.999999-23:59",
    "0001-01-01T00:00:00+23:59:59.999999=\ud800",
    "24:00",
    "12:30:00.5~",
    "12:30+25:00",
    "~@=",
]
NUMBERS: Final = [
    "1",
    "-0",
    "1.50",
    "NaN",
    "sNaN",
    "-Infinity",
    "1E+999999999",
    "1E+99999999999999999999",
    "1_0",
    "\u0663",
    "",
]
NAMES: Final = [f"{HERE}:Color", f"{HERE}:Access", f"{HERE}:Money", f"{HERE}:Point", f"{HERE}:Gone", "builtins:dict"]
TRAPS: Final = ["fuzz_trap:Color", "fuzz_trap:Color.mro", "fuzz_trap"]
MEMBERS: Final = ["=RED", "=GREEN", "=CRIMSON", "=__class__", "#1", "#3", "#-1", "#99", "#", "=", "", "#" + "9" * 5000]
CODES: Final = [*(code for name, code in vars(Code).items() if name.isupper()), 0, 6, 25, 33, 127]
DEEPEST: Final = 5

# Bodies in which nothing is wrong.
_SAMPLES: Final[list[Any]] = [
    *(datetime.fromisoformat(text) for text in ("2026-01-01", "2026-01-01T12:30:00.000001+05:30")),
    datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1), "CET")),
    *(date(2026, 2, 28), date.max, time_of_day(12, 30), time_of_day(12, 30, fold=1), time_of_day(1, tzinfo=UTC)),
    *(timedelta(0), timedelta(days=-1, microseconds=5), timedelta.max, UUID(int=5), UUID(int=2**128 - 1)),
    *(Decimal(text) for text in ("1.50", "-0", "NaN", "sNaN", "-Infinity", "1E+999999999")),
    *(2**80, -(2**64), "half \ud800", ""),
]
_RIGHT: Final[list[tuple[int, bytes]]] = [
    *((code, write(value)) for value in _SAMPLES for code, write in [ATOMS[type(value)]]),
    *((Code.ENUM, f"{HERE}:{name}".encode()) for name in ("Color=RED", "Color=CRIMSON", "Access#3", "Access=READ")),
]
_FIELDS: Final = {"Money": ("amount", "currency"), "Point": ("x", "y")}


@cache
def _wholes(signed: bool) -> list[bytes]:
    body = 44 if signed else 12
    codec = Codec(KEYRING if signed else None, types=() if signed else [Color, Access, Money, Point])
    return [codec.dumps(value, JOB)[body:] for value in VALUES]


class Writer:
    """Writes documents; `traps` lets them name a module that must not be imported."""

    def __init__(self, rng: random.Random, trap: Path, *, traps: bool) -> None:
        self._rng = rng
        self._trap = trap
        self._names = NAMES + TRAPS if traps else NAMES
        self._signed = not traps
        self._slips = rng.random() < 0.6

    def whole(self) -> bytes:
        """Return a document as the codec writes it."""
        return self._rng.choice(_wholes(self._signed))

    def grown(self) -> bytes:
        """Return a document of any shape."""
        return self._value(0) if self._rng.random() < 0.1 else self._array(0)

    def _value(self, depth: int) -> bytes:
        kinds: list[Callable[[int], bytes]] = [self._number, self._text, self._bytes, self._extension, self._extension]
        if depth < DEEPEST:
            kinds += [self._array, self._map, self._extension]
        return self._rng.choice(kinds)(depth)

    def _number(self, depth: int) -> bytes:
        rng = self._rng
        # nil, false, true, small numbers of both signs; the byte that means nothing
        if self._slips and rng.random() < 0.02:
            return b"\xc1"
        if rng.random() < 0.5:
            return bytes([rng.choice([0xC0, 0xC0, 0xC2, 0xC3, rng.randrange(128), rng.randrange(0xE0, 256)])])
        tag = rng.randrange(0xCA, 0xD4)
        return bytes([tag]) + rng.randbytes((4, 8, 1, 2, 4, 8, 1, 2, 4, 8)[tag - 0xCA])

    def _text(self, depth: int) -> bytes:
        text = self._rng.choice(TEXTS).encode()
        if self._slips and self._rng.random() < 0.05:
            text += self._rng.choice([b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80"])
        return self._sized(text, (0xA0, 32), 0xD9)

    def _bytes(self, depth: int) -> bytes:
        return self._sized(self._rng.randbytes(self._rng.randrange(40)), None, 0xC4)

    def _array(self, depth: int) -> bytes:
        return self._counted([self._value(depth + 1) for _ in range(self._rng.randrange(5))], 0x90, 0xDC)

    def _map(self, depth: int) -> bytes:
        keyed = self._value if self._slips and self._rng.random() < 0.1 else self._text
        items = [keyed(depth + 1) + self._value(depth + 1) for _ in range(self._rng.randrange(4))]
        return self._counted(items, 0x80, 0xDE)

    def _extension(self, depth: int) -> bytes:
        rng = self._rng
        if self._slips:
            code = rng.choice(CODES)
            body = self._body(code, depth)
        else:
            code, body = self._right(depth)
        if self._slips and rng.random() < 0.08:
            body = rng.choice([b"", body[:-1], body + b"\0", rng.randbytes(rng.randint(1, 20))])
        fixed = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}.get(len(body))
        if fixed is not None and rng.random() < 0.5:
            return bytes([fixed, code]) + body
        return self._sized(body, None, 0xC7, bytes([code]))

    def _right(self, depth: int) -> tuple[int, bytes]:
        """Return an extension that can be restored, unless the same element is in it twice."""
        rng = self._rng
        if depth >= DEEPEST or rng.random() < 0.5:
            return rng.choice(_RIGHT)
        code = rng.choice([Code.TUPLE, Code.SET, Code.FROZENSET, Code.DICT, Code.OBJECT])
        if code == Code.TUPLE:
            return code, self._array(depth + 1)
        if code == Code.OBJECT:
            name = rng.choice(list(_FIELDS))
            items = [f"{HERE}:{name}", *_FIELDS[name][: rng.randint(1, 2)]]
            texts = [self._sized(item.encode(), (0xA0, 32), 0xD9) for item in items]
            values = [part for text in texts[1:] for part in (text, self._value(depth + 1))]
            return code, self._counted([texts[0], *values], 0x90, 0xDC)
        leaves = [self._number(depth) if rng.random() < 0.5 else self._text(depth) for _ in range(rng.randrange(5))]
        items_of = [part for leaf in leaves for part in (leaf, self._value(depth + 1))] if code == Code.DICT else leaves
        return code, self._counted(items_of, 0x90, 0xDC)

    def _body(self, code: int, depth: int) -> bytes:
        rng = self._rng
        if code in (Code.TUPLE, Code.SET, Code.FROZENSET, Code.DICT):
            return self._array(depth + 1) if rng.random() < 0.95 else self._value(depth + 1)
        if code == Code.OBJECT:
            return self._object(depth)
        if code == Code.ENUM:
            return (rng.choice(self._names) + rng.choice(MEMBERS)).encode()
        if code in (Code.DATETIME, Code.DATE, Code.TIME):
            return rng.choice(MOMENTS).encode("utf-8", "surrogatepass")
        if code == Code.DECIMAL:
            return rng.choice(NUMBERS).encode()
        if code == Code.PICKLE:
            return pickle.dumps(Touch(self._trap))
        if code == Code.TIMEDELTA:
            return struct.pack(">iii", rng.choice([0, -1, 999_999_999, 2**31 - 1]), rng.randrange(86_400), 5)
        return rng.randbytes({Code.UUID: 16}.get(code, rng.randrange(20)))

    def _object(self, depth: int) -> bytes:
        rng = self._rng
        fields = rng.choice([("amount", "currency"), ("amount",), ("x", "y"), ("x",), ("y", "y"), ("gone",), ()])
        items = [self._sized(rng.choice(self._names).encode(), (0xA0, 32), 0xD9)]
        for name in fields:
            items += [self._sized(name.encode(), (0xA0, 32), 0xD9), self._value(depth + 1)]
        if rng.random() < 0.05:
            del items[rng.randrange(len(items))]
        return self._counted(items, 0x90, 0xDC)

    def _sized(self, body: bytes, short: tuple[int, int] | None, tag: int, between: bytes = b"") -> bytes:
        """Write bytes behind their length: in any width that has room, and now and then a wrong one."""
        size = self._lie(len(body))
        if short is not None and size < short[1] and self._rng.random() < 0.7:
            return bytes([short[0] | size]) + body
        widths = [at for at in range(3) if size < 256 ** (1 << at)]
        at = self._rng.choice(widths)
        return bytes([tag + at]) + size.to_bytes(1 << at) + between + body

    def _counted(self, items: list[bytes], short: int, tag: int) -> bytes:
        count = self._lie(len(items))
        if count < 16 and self._rng.random() < 0.8:
            return bytes([short | count]) + b"".join(items)
        wide = count >= 2**16 or self._rng.random() < 0.5
        return bytes([tag + wide]) + count.to_bytes(4 if wide else 2) + b"".join(items)

    def _lie(self, size: int) -> int:
        if not self._slips or self._rng.random() > 0.01:
            return size
        return self._rng.choice([max(0, size - 1), size + 1, 0, 15, 31, 255, 2**16 - 1, 2**31, 2**32 - 1])
