"""Programs that the tasks of a dead worker left running: the sentinel adopts and kills them."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any, Final

__all__ = ["Orphans"]

_PR_SET_CHILD_SUBREAPER: Final = 36
_KILL_ROUNDS: Final = 100


class Orphans:
    """The children of this process that it did not start; none where the system does not let a process adopt them."""

    def __init__(self) -> None:
        self._before: set[int] = set()
        """Children from before: a script may have started them before it became this process."""
        self._adopts = sys.platform == "linux"
        if self._adopts:
            import ctypes

            self._before = _children()
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def end(self, workers: set[int]) -> int:
        """Kill all children except the workers and Python's own helpers; return how many there were."""
        if not self._adopts:
            return 0
        ours = workers | self._before | _helpers()
        killed: set[int] = set()
        for _ in range(_KILL_ROUNDS):  # when an orphan dies, its children become ours
            orphans = _children() - ours
            if not orphans:
                break
            for pid in orphans:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
            killed |= orphans
        return len(killed)


def _children() -> set[int]:
    me, found = str(os.getpid()), set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError, IndexError):
                if (entry / "stat").read_text().rpartition(")")[2].split()[1] == me:
                    found.add(int(entry.name))
    return found


def _helpers() -> set[int]:
    tracker: Any = resource_tracker._resource_tracker
    server: Any = forkserver._forkserver
    return {pid for pid in (tracker._pid, server._forkserver_pid) if pid is not None}
