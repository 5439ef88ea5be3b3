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
from itertools import count
from typing import Final, NamedTuple

__all__ = ["Board", "Posted"]

_TEXT: Final = 1536
_MARK: Final = struct.Struct("<H")  # the length of the id, and how it is executed
_DEADLINE: Final = struct.Struct("<d")
_ENDED: Final = 0x8000
_APART: Final = 0x4000
_LENGTH: Final = 0x3FFF
_UNUSED: Final = b"\0" * 4096
_ENTRY: Final = _MARK.size + _DEADLINE.size + _TEXT


class Posted(NamedTuple):
    """A run that was started; `deadline` is by the monotonic clock, infinite if there is none or it has ended."""

    run_id: str
    deadline: float
    ended: bool
    apart: bool
    """Whether it is executed in a process of its own."""


class Board:
    """The board in the file at `path`; whoever makes it says how many `entries` it is to have.

    The file has holes: memory is used only for entries that are in use.
    """

    def __init__(self, path: str, *, entries: int | None = None) -> None:
        fd = os.open(path, os.O_RDWR)
        try:
            if entries is not None:
                os.truncate(fd, entries * _ENTRY)
            size = os.fstat(fd).st_size
            self._map = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        self._count = size // _ENTRY
        self._deadlines = self._count * _MARK.size
        self._texts = self._deadlines + self._count * _DEADLINE.size
        self._fresh = count()
        self._free: list[int] = []
        self._numbers: dict[str, int] = {}

    def enter(self, run_id: str, timeout: float | None, *, apart: bool = False) -> None:
        """Note a run that starts."""
        try:
            number = self._free.pop()
        except IndexError:
            number = next(self._fresh)
            if number >= self._count:
                return
        text = run_id.encode()[:_TEXT]
        board, place = self._map, self._texts + number * _TEXT
        board[place : place + len(text)] = text
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        _DEADLINE.pack_into(board, self._deadlines + number * _DEADLINE.size, deadline)
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
        end, step = self._deadlines, len(_UNUSED)  # the low numbers are used first
        while end > step and self._map[end - step : end] == _UNUSED:
            end -= step
        marks = self._map[:end].rstrip(b"\0")
        for number, (mark,) in enumerate(_MARK.iter_unpack(marks + b"\0" * (len(marks) % 2))):
            if mark:
                place, ended = self._texts + number * _TEXT, bool(mark & _ENDED)
                (deadline,) = _DEADLINE.unpack_from(self._map, self._deadlines + number * _DEADLINE.size)
                text = self._map[place : place + (mark & _LENGTH)].decode(errors="replace")
                found.append(Posted(text, math.inf if ended else deadline, ended, bool(mark & _APART)))
        return found

    def close(self) -> None:
        """Let go of the memory."""
        self._map.close()
