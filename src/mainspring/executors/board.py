"""A board in shared memory on which a worker process notes what it executes, so that its parent knows after any death.

Each entry holds a run's id, the moment by which it should have ended, and whether it has. It stays until the store
knows the outcome: a run that has ended, but not for the store, was executed all the same. The mark of an entry is
written last and cleared first, so an entry is whole or empty whenever the process dies.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import time
from typing import Final, NamedTuple

__all__ = ["ENTRIES", "Board", "Posted"]

ENTRIES: Final = 8192
"""More than a node ever claims at once. The file has holes: memory is used only for entries that are in use."""

_TEXT: Final = 1536
_MARK: Final = struct.Struct("<H")  # the length of the id, and how it is executed
_DEADLINE: Final = struct.Struct("<d")
_ENDED: Final = 0x8000
_APART: Final = 0x4000
_LENGTH: Final = 0x3FFF


class Posted(NamedTuple):
    """A run that was started; `deadline` is by the monotonic clock, infinite if there is none or it has ended."""

    run_id: str
    deadline: float
    ended: bool
    apart: bool
    """Whether it is executed in a process of its own."""


class Board:
    """The board in the file at `path`; whoever makes it says so with `create`."""

    def __init__(self, path: str, *, create: bool = False) -> None:
        fd = os.open(path, os.O_RDWR)
        try:
            if create:
                os.truncate(fd, ENTRIES * (_MARK.size + _DEADLINE.size + _TEXT))
            self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        finally:
            os.close(fd)
        self._free = list(range(ENTRIES - 1, -1, -1))
        self._numbers: dict[str, int] = {}

    def enter(self, run_id: str, timeout: float | None, *, apart: bool = False) -> None:
        """Note a run that starts."""
        try:
            number = self._free.pop()
        except IndexError:
            return
        text = run_id.encode()[:_TEXT]
        board, place = self._map, _place(number)
        board[place : place + len(text)] = text
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        _DEADLINE.pack_into(board, _DEADLINES + number * _DEADLINE.size, deadline)
        _MARK.pack_into(board, number * _MARK.size, len(text) | (_APART if apart else 0))
        self._numbers[run_id] = number

    def end(self, run_id: str) -> None:
        """Note that a run is not executed any more."""
        number = self._numbers.get(run_id)
        if number is not None:  # None: it was given up, and is settled
            (mark,) = _MARK.unpack_from(self._map, number * _MARK.size)
            _MARK.pack_into(self._map, number * _MARK.size, mark | _ENDED)

    def forget(self, run_id: str) -> bool:
        """Take a run off the board, now that the store knows its outcome; tell whether it was there."""
        number = self._numbers.pop(run_id, None)
        if number is None:
            return False
        _MARK.pack_into(self._map, number * _MARK.size, 0)
        self._free.append(number)
        return True

    def read(self) -> list[Posted]:
        """Return what is being executed, or was when the process died."""
        found = []
        marks = self._map[:_DEADLINES].rstrip(b"\0")  # the low numbers are used first
        for number, (mark,) in enumerate(_MARK.iter_unpack(marks + b"\0" * (len(marks) % 2))):
            if mark:
                place, ended = _place(number), bool(mark & _ENDED)
                (deadline,) = _DEADLINE.unpack_from(self._map, _DEADLINES + number * _DEADLINE.size)
                text = self._map[place : place + (mark & _LENGTH)].decode(errors="replace")
                found.append(Posted(text, math.inf if ended else deadline, ended, bool(mark & _APART)))
        return found

    def close(self) -> None:
        """Let go of the memory."""
        self._map.close()


_DEADLINES: Final = ENTRIES * _MARK.size
_TEXTS: Final = _DEADLINES + ENTRIES * _DEADLINE.size


def _place(number: int) -> int:
    return _TEXTS + number * _TEXT
