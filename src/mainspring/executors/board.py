"""A board in shared memory on which a worker process notes what it executes, so that its parent knows after any death.

Each entry holds a run's id and the moment by which it should have ended. The length of the id is written last and
cleared first, so an entry is whole or empty whenever the process dies.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import time
from collections import deque
from typing import Final, NamedTuple

__all__ = ["Board", "Posted"]

_SIZE: Final = 1536
_LENGTH: Final = struct.Struct("<H")
_DEADLINE: Final = struct.Struct("<d")
_TEXT: Final = _LENGTH.size + _DEADLINE.size


class Posted(NamedTuple):
    """A run that is being executed; `deadline` is by the monotonic clock, infinite without a time-out."""

    run_id: str
    deadline: float


class Board:
    """The board in the file at `path`; whoever makes it first gives the number of `entries`."""

    def __init__(self, path: str, entries: int | None = None) -> None:
        flags = os.O_RDWR | (os.O_CREAT if entries is not None else 0)
        fd = os.open(path, flags, 0o600)
        try:
            if entries is not None:
                os.truncate(fd, entries * _SIZE)
            size = os.fstat(fd).st_size
            self._map = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        self._free = deque(range(0, size, _SIZE))

    def enter(self, run_id: str, timeout: float | None) -> int | None:
        """Note a run that starts; return the place of its entry, None if the board is full."""
        try:
            place = self._free.popleft()
        except IndexError:
            return None
        text = run_id.encode()[: _SIZE - _TEXT]
        board = self._map
        board[place + _TEXT : place + _TEXT + len(text)] = text
        _DEADLINE.pack_into(board, place + _LENGTH.size, math.inf if timeout is None else time.monotonic() + timeout)
        _LENGTH.pack_into(board, place, len(text))
        return place

    def leave(self, place: int) -> None:
        """Note that the run at a place has ended."""
        _LENGTH.pack_into(self._map, place, 0)
        self._free.append(place)

    def read(self) -> list[Posted]:
        """Return what is being executed, or was when the process died."""
        found = []
        with memoryview(self._map) as whole, whole.cast("H") as halves:
            lengths = halves[:: _SIZE // 2].tolist()
        for number, length in enumerate(lengths):
            if length:
                place = number * _SIZE
                (deadline,) = _DEADLINE.unpack_from(self._map, place + _LENGTH.size)
                text = self._map[place + _TEXT : place + _TEXT + length]
                found.append(Posted(text.decode(errors="replace"), deadline))
        return found

    def close(self) -> None:
        """Let go of the memory."""
        self._map.close()
