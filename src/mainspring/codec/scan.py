"""Check the bounds of an unsigned document before the parser reads it.

The parser keeps its state on the C stack and makes objects as it reads. So 1,000 bytes nested 1,000 deep can end a
process whose thread has a small stack, and 16 MiB of empty dicts fill a gigabyte. So do 16 MiB in 64 nested tuples,
since the parser copies each of them to read it.
"""

from __future__ import annotations

from typing import Final

from mainspring.codec.errors import FrameError, Reason
from mainspring.codec.values import COMPOUNDS, MAX_DEPTH, MAX_NESTED_BYTES, MAX_VALUES, OTHER_BYTES, begins_array

__all__ = ["check_bounds"]

# For the first bytes c0 to df: the width of the length that follows, and the least number of bytes after it.
_SIZES: Final[dict[int, tuple[int, int]]] = {
    **dict.fromkeys((0xC0, 0xC2, 0xC3), (0, 0)),
    **dict(zip(range(0xC4, 0xC7), ((1, 0), (2, 0), (4, 0)), strict=True)),
    **dict(zip(range(0xC7, 0xCA), ((1, 1), (2, 1), (4, 1)), strict=True)),
    **dict(zip(range(0xCA, 0xD4), ((0, size) for size in (4, 8, 1, 2, 4, 8, 1, 2, 4, 8)), strict=True)),
    **dict(zip(range(0xD4, 0xD9), ((0, size) for size in (2, 3, 5, 9, 17)), strict=True)),
    **dict(zip(range(0xD9, 0xDC), ((1, 0), (2, 0), (4, 0)), strict=True)),
}
_EXTENSIONS: Final = frozenset([*range(0xC7, 0xCA), *range(0xD4, 0xD9)])


def check_bounds(data: bytes) -> None:
    """Refuse a document that is nested too deep, holds too many values, or needs too much memory to read."""
    # Every container starts with one of these bytes. So a document with few of them is fine without a scan, unless one
    # may announce a length of 32 bits: some versions of the parser reserve memory for that before they read on.
    found = data.translate(None, OTHER_BYTES)
    if len(data) > MAX_VALUES or len(found) > MAX_DEPTH or b"\xdd" in found or b"\xdf" in found:
        # Smaller documents cannot exceed MAX_NESTED_BYTES: they have at most MAX_VALUES bytes on MAX_DEPTH levels.
        _Scan(data).document(0, len(data), 0)


class _Scan:
    __slots__ = ("data", "left", "nested")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.left = MAX_VALUES
        self.nested = 0

    def document(self, at: int, end: int, depth: int) -> None:
        """Scan the single value between two positions; its outermost container is at `depth`."""
        data, items = self.data, 1
        outer: list[int] = []
        while True:
            while not items:
                if not outer:
                    return
                items = outer.pop()
            items -= 1
            self.left -= 1
            if self.left < 0:
                raise FrameError(Reason.TOO_LARGE, f"holds more than {MAX_VALUES:,} values")
            if at >= end:
                raise _misfit()
            tag = data[at]
            at += 1
            if 0x80 <= tag < 0xA0 or 0xDC <= tag < 0xE0:
                outer.append(items)
                items, at = self._count(tag, at)
                if items > end - at:
                    raise _misfit()
                if depth + len(outer) > MAX_DEPTH:
                    raise FrameError(Reason.BAD_DATA, f"nested deeper than {MAX_DEPTH} levels")
            elif 0xA0 <= tag < 0xE0:
                at = self._leaf(tag, at, end, depth + len(outer))

    def _count(self, tag: int, at: int) -> tuple[int, int]:
        """Return how many items a container has and where they begin."""
        if tag < 0xA0:
            return (tag & 15) * (1 if tag & 0x10 else 2), at
        width = 4 if tag & 1 else 2
        return int.from_bytes(self.data[at : at + width]) * (2 if tag & 2 else 1), at + width

    def _leaf(self, tag: int, at: int, end: int, depth: int) -> int:
        """Return the end of a value that is not a container; scan the inside of an extension that holds an array."""
        if tag < 0xC0:
            return at + (tag & 31)
        if tag not in _SIZES:
            raise _misfit()
        width, fixed = _SIZES[tag]
        size = int.from_bytes(self.data[at : at + width]) + fixed
        at += width
        stop = at + size
        if stop > end:
            raise _misfit()
        if tag in _EXTENSIONS and self.data[at] in COMPOUNDS:
            if not begins_array(self.data[at + 1 : at + 2]):
                raise _misfit()
            self.nested += size
            if self.nested > MAX_NESTED_BYTES:
                raise FrameError(
                    Reason.TOO_LARGE, f"holds tuples, sets or objects in one another of over {MAX_NESTED_BYTES:,} bytes"
                )
            self.document(at + 1, stop, depth)
            self.nested -= size
        return stop


def _misfit() -> FrameError:
    return FrameError(Reason.BAD_DATA, "the data does not end where it should")
