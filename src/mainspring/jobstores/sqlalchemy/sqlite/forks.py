"""Make a fork wait until no thread of this process is inside SQLite."""

from __future__ import annotations

import functools
import os
import threading
import weakref

from mainspring.jobstores.sqlalchemy.database import STEP_TIMEOUT_SECONDS

__all__ = ["readers", "watch"]


class Readers:
    """The threads that read. A fork waits until none is inside SQLite: the child would inherit SQLite's held locks."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Start with no thread inside and a new lock; in a child, a thread of the parent may have held the old one."""
        # Enter the lock, not the condition: an interrupt in the condition's Python code would leave it locked for ever.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        # If an interrupt keeps a thread from leaving, its next read or its own fork makes up for that.
        self._inside: set[int] = set()
        self._forking: int | None = None

    def __enter__(self) -> None:
        with self._lock:
            me = threading.get_ident()
            if self._forking not in (None, me):
                self._changed.wait_for(lambda: self._forking in (None, me), STEP_TIMEOUT_SECONDS)
            self._inside.add(me)

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._inside.discard(threading.get_ident())
            self._changed.notify_all()

    def keep_out(self) -> None:
        """Let no other thread in, and wait until all others are out, but at most STEP_TIMEOUT_SECONDS."""
        with self._lock:
            me = self._forking = threading.get_ident()
            self._changed.wait_for(lambda: self._inside <= {me}, STEP_TIMEOUT_SECONDS)

    def let_in(self) -> None:
        """Let threads in again after the fork."""
        with self._lock:
            self._forking = None
            self._changed.notify_all()


readers = Readers()
"""A thread enters this while it reads: `with readers: ...`."""
_turns: weakref.WeakSet[threading.Lock] = weakref.WeakSet()
_held: list[threading.Lock] = []


def watch(turn: threading.Lock) -> None:
    """Make every fork wait for this lock, which a database holds while it writes."""
    _turns.add(turn)
    _hook()


@functools.cache
def _hook() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_pause, after_in_parent=_resume, after_in_child=_begin_anew)


def _pause() -> None:
    readers.keep_out()
    # SQLite remembers for each process which connection has the write lock. A child that is forked inside a transaction
    # would think that one of its own connections has it, and wait for ever.
    for turn in list(_turns):
        if turn.acquire(timeout=STEP_TIMEOUT_SECONDS):
            _held.append(turn)


def _resume() -> None:
    while _held:
        _held.pop().release()
    readers.let_in()


def _begin_anew() -> None:
    readers.begin_anew()
    _resume()
