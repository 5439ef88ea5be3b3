"""What the tasks note of their execution, cheaply: a few bytes per process, mapped from a file.

Every library calls the same two functions: `noop`, which counts, and `stamp`, which notes when it began.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(os.environ.get("BENCH_FOLDER", "."))
COUNTED = struct.Struct("<qdd")
STARTED = struct.Struct("<d")
STAMPS = 4096


class Counted(NamedTuple):
    """How many calls there were, and the times of the first and the last."""

    calls: int
    first: float
    last: float


class _Notes:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.first = 0.0
        self.counted: mmap.mmap | None = None
        self.started: mmap.mmap | None = None


_notes = _Notes()
os.register_at_fork(after_in_child=lambda: _notes.__init__())  # type: ignore[misc]


def noop() -> int:
    """Count; the result is one that every library keeps (some drop None)."""
    notes, now = _notes, time.monotonic()
    with notes.lock:
        if notes.counted is None:
            notes.first = now
            notes.counted = _mapped(FOLDER / f"counted-{os.getpid()}", COUNTED.size)
        notes.count += 1
        COUNTED.pack_into(notes.counted, 0, notes.count, notes.first, now)
    return 1


def stamp(number: int) -> int:
    """Note when it began."""
    now = time.monotonic()
    if _notes.started is None:
        _notes.started = _mapped(FOLDER / "started", STAMPS * STARTED.size)
    STARTED.pack_into(_notes.started, number * STARTED.size, now)
    return 1


def read_counted(folder: Path) -> Counted:
    """Return what all processes have counted so far."""
    found = []
    for path in folder.glob("counted-*"):
        noted = path.read_bytes()
        if len(noted) == COUNTED.size:
            found.append(Counted(*COUNTED.unpack(noted)))
    found = [each for each in found if each.calls]
    if not found:
        return Counted(0, 0.0, 0.0)
    calls, first, last = zip(*found, strict=True)
    return Counted(sum(calls), min(first), max(last))


class Stamps:
    """When each stamp began; 0 for those that have not."""

    def __init__(self) -> None:
        self._map = _mapped(FOLDER / "started", STAMPS * STARTED.size)

    def __getitem__(self, number: int) -> float:
        began: float = STARTED.unpack_from(self._map, number * STARTED.size)[0]
        return began


def _mapped(path: Path, size: int) -> mmap.mmap:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(file).st_size < size:
            os.ftruncate(file, size)
        return mmap.mmap(file, size)
    finally:
        os.close(file)
