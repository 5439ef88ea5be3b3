"""The sentinel adopts programs that tasks left behind, reaps those that end, and kills those of a dead worker."""

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
    """The adopted children of this process, which it did not start; none if the system does not support adoption."""

    def __init__(self) -> None:
        self._before: set[int] = set()
        """The earlier children: a script may have started them before it became this process."""
        self._ended: set[int] = set()
        """The orphans that had ended at the last check."""
        self._adopts = sys.platform == "linux"
        if self._adopts:
            import ctypes

            self._before = _children()
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def reap(self, workers: set[int]) -> None:
        """Reap the orphans that had already ended at the last check: threads reap their own children before that."""
        if not self._adopts or not _some_child_has_ended():
            self._ended.clear()
            return
        orphans = self._orphans(workers)
        for pid in self._ended & orphans:
            with suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
        self._ended = {pid for pid in orphans - self._ended if _state(pid) == "Z"}

    def end(self, workers: set[int]) -> int:
        """Kill all children except the workers and Python's own helpers; return how many were alive."""
        if not self._adopts:
            return 0
        killed: set[int] = set()
        for _ in range(_KILL_ROUNDS):  # when an orphan dies, its children become ours
            orphans = self._orphans(workers)
            if not orphans:
                break
            killed |= {pid for pid in orphans if _state(pid) != "Z"}
            for pid in orphans:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
        return len(killed)

    def _orphans(self, workers: set[int]) -> set[int]:
        return _children() - workers - self._before - _helpers()


def _some_child_has_ended() -> bool:
    """Return True if a child waits to be reaped, without reaping it."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _children() -> set[int]:
    me = str(os.getpid())
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return {pid for pid in pids if _stat(pid)[1] == me}


def _state(pid: int) -> str:
    return _stat(pid)[0]


def _stat(pid: int) -> tuple[str, str]:
    """Return the state of a process and the id of its parent, as the system writes them; empty if it is gone."""
    with suppress(OSError, ValueError):
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return state, parent
    return "", ""


def _helpers() -> set[int]:
    tracker: Any = resource_tracker._resource_tracker
    server: Any = forkserver._forkserver
    return {pid for pid in (tracker._pid, server._forkserver_pid) if pid is not None}
