"""A scoreboard in shared memory: a worker process notes the runs it executes, so its parent knows them after any death.

An entry holds the id of a run, its deadline, and whether it has ended. It stays until the store has the outcome: a run
that ended before the store knew was executed all the same. The mark of an entry is written last and cleared first, so
an entry is whole or empty whenever the process dies. An id too long for its entry is noted as a digest; the reader
knows which ids are possible.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import tempfile
import time
from collections.abc import Iterable
from hashlib import sha256
from itertools import count
from multiprocessing import reduction
from typing import Any, Final, NamedTuple

__all__ = ["Scoreboard", "StartedRun", "make_board"]

_ID_BYTES: Final = 1536
_MARK: Final = struct.Struct("<H")  # the length of the id, how it is executed, and whether it has a deadline
_DEADLINE: Final = struct.Struct("<d")
_ENDED: Final = 0x8000
_APART: Final = 0x4000
_DIGEST: Final = 0x2000
_TIMED: Final = 0x1000
_LENGTH: Final = 0x0FFF
_UNUSED: Final = b"\0" * 4096
_set_mark, _set_deadline = _MARK.pack_into, _DEADLINE.pack_into
_ENTRY_BYTES: Final = _MARK.size + _DEADLINE.size + _ID_BYTES


class StartedRun(NamedTuple):
    """A run on the board. `deadline` is by the monotonic clock, infinite if the run has no time-out or has ended."""

    run_id: str
    deadline: float
    ended: bool
    apart: bool
    """Whether it executes in a separate process."""


class Scoreboard:
    """A board in the open file `fd`, which the board owns; `make_board` makes one.

    Pass it as an argument to a new process, and that process gets a board in the same memory.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        os.set_inheritable(fd, False)  # programs that a task starts must not get it
        size = os.fstat(fd).st_size
        self._map = mmap.mmap(fd, size)
        self._count = size // _ENTRY_BYTES
        self._deadlines = self._count * _MARK.size
        self._texts = self._deadlines + self._count * _DEADLINE.size
        self._fresh = count()
        self._free: list[int] = []
        self._marks: dict[str, tuple[int, int]] = {}
        """The position and value of the mark of each run, by its id."""

    def enter(self, run_id: str, timeout: float | None, *, apart: bool = False) -> None:
        """Note a run that starts."""
        try:
            number = self._free.pop()
        except IndexError:
            number = next(self._fresh)
            if number >= self._count:
                return
        text, kind = run_id.encode(), _APART if apart else 0
        if len(text) > _ID_BYTES:
            text, kind = sha256(text).digest(), kind | _DIGEST
        board, place = self._map, self._texts + number * _ID_BYTES
        board[place : place + len(text)] = text
        if timeout is not None:
            kind |= _TIMED
            _set_deadline(board, self._deadlines + number * _DEADLINE.size, time.monotonic() + timeout)
        place, mark = number * _MARK.size, len(text) | kind
        _set_mark(board, place, mark)
        self._marks[run_id] = place, mark

    def end(self, run_id: str) -> None:
        """Mark a run as ended."""
        found = self._marks.get(run_id)
        if found is not None:  # None: it was given up, and is settled
            place, mark = found
            _set_mark(self._map, place, mark | _ENDED)

    def forget(self, run_id: str) -> bool:
        """Remove a run from the board, now that the store has its outcome; return True if it was there."""
        found = self._marks.pop(run_id, None)
        if found is None:
            return False
        place = found[0]
        _set_mark(self._map, place, 0)
        self._free.append(place // _MARK.size)
        return True

    def read(self, known: Iterable[str]) -> list[StartedRun]:
        """Return the runs on the board, even after its process died; `known` are the ids that it may contain."""
        found = []
        long: dict[bytes, str] | None = None
        end, step = self._deadlines, len(_UNUSED)  # low entries are used first, so skip the unused end
        while end > step and self._map[end - step : end] == _UNUSED:
            end -= step
        marks = self._map[:end].rstrip(b"\0")
        for number, (mark,) in enumerate(_MARK.iter_unpack(marks + b"\0" * (len(marks) % 2))):
            if mark:
                place, ended, deadline = self._texts + number * _ID_BYTES, bool(mark & _ENDED), math.inf
                if mark & _TIMED and not ended:
                    (deadline,) = _DEADLINE.unpack_from(self._map, self._deadlines + number * _DEADLINE.size)
                text = self._map[place : place + (mark & _LENGTH)]
                if mark & _DIGEST and long is None:
                    long = {sha256(each.encode()).digest(): each for each in known if len(each) > _ID_BYTES // 4}
                run_id = (long or {}).get(text, "") if mark & _DIGEST else text.decode(errors="replace")
                found.append(StartedRun(run_id, deadline, ended, bool(mark & _APART)))
        return found

    def fileno(self) -> int:
        """Return the open file."""
        return self._fd

    def close(self) -> None:
        """Release the memory; a second call does nothing."""
        self._map.close()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __reduce__(self) -> tuple[Any, ...]:
        return _inherited_board, (reduction.DupFd(self._fd),)


def make_board(entries: int) -> Scoreboard:
    """Make a board with room for `entries` runs, in a file without a name: a killed process leaves nothing behind.

    The file is sparse: only entries in use take memory.
    """
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("mainspring-board")
    else:
        fd, path = tempfile.mkstemp(prefix="mainspring-board-")
        os.unlink(path)
    os.truncate(fd, entries * _ENTRY_BYTES)
    return Scoreboard(fd)


def _inherited_board(handle: Any) -> Scoreboard:
    return Scoreboard(handle.detach())
