"""The ledger: what happened, written by those to whom it happened, outside every store.

Each process appends records of one size to a file of its own, with one `write` each, so a SIGKILL loses nothing that
was written and leaves no half of a record.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic_ns
from time import time_ns as time_ns  # bound here: a program may make its own clock wrong
from typing import Final, NamedTuple

SIZE: Final = 160

BEGIN: Final = "B"  # a process takes part
PROPOSE: Final = "P"  # a run is about to be enqueued
ENQUEUED: Final = "E"  # ... and that was acknowledged
UNKNOWN: Final = "U"  # ... or its reply was lost
CLAIMED: Final = "C"  # a node was given the run
START: Final = "S"  # the task began; extra: the instant before which it must not
EFFECT: Final = "X"  # the task did its work
ACCEPTED: Final = "A"  # the store took a final outcome; extra: the status
BACK: Final = "G"  # the store took a word that makes the run wait again: a retry, a crash, given back
RECOVERED: Final = "R"  # the store took the janitor's word that its holder is gone
LOST: Final = "L"  # the store refused a word about the run
FAULT: Final = "K"  # harm was done; id: what, extra: how long, in seconds


class Record(NamedTuple):
    """One thing that happened."""

    kind: str
    at: int
    """Nanoseconds since 1970 by this machine's clock, which is also that of every store here."""
    pid: int
    id: str
    attempt: int
    token: str
    extra: str


class Ledger:
    """The file of this process; a fork or a spawn opens its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pid = self._fd = -1

    def write(self, kind: str, entries: Iterable[tuple[str, int, str | None, object]], pid: int | None = None) -> None:
        """Append entries of (id, attempt, token, extra); `pid` is who is meant, if it is somebody else."""
        mine = os.getpid()
        if mine != self._pid:
            path = self._folder / f"{mine}-{monotonic_ns()}.ledger"
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            self._pid = mine
        now = time_ns()
        lines = [
            f"{kind} {now} {pid or mine} {name} {attempt} {token or '-'} {extra}".encode()
            for name, attempt, token, extra in entries
        ]
        assert all(len(line) < SIZE for line in lines), lines
        if lines:
            os.write(self._fd, b"".join(line.ljust(SIZE - 1) + b"\n" for line in lines))

    def note(self, kind: str, name: str, extra: object = 0, pid: int | None = None) -> None:
        """Append one entry that is not about a claim."""
        self.write(kind, [(name, 0, None, extra)], pid)


def parse(data: bytes) -> Iterator[Record]:
    """Read whole records."""
    for start in range(0, len(data) - SIZE + 1, SIZE):
        kind, at, pid, name, attempt, token, extra = data[start : start + SIZE].decode().split()
        yield Record(kind, int(at), int(pid), name, int(attempt), token, extra)


class Reader:
    """Reads what was added to all ledgers of a folder since the last look."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def fresh(self) -> Iterator[Record]:
        """Yield the records that are new, file by file."""
        for path in self._folder.glob("*.ledger"):
            seen = self._read.get(path, 0)
            size = path.stat().st_size // SIZE * SIZE
            if size > seen:
                with path.open("rb") as file:
                    file.seek(seen)
                    data = file.read(size - seen)
                self._read[path] = seen + len(data)
                yield from parse(data)
