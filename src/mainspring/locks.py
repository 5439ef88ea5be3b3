"""Locks that are free in a forked child.

A fork copies every lock as it is. If another thread holds one at that moment, that thread does not exist in the child,
and the child would wait for it for ever: a web server that forks its workers, multiprocessing, `os.fork()` in a task.
So every lock that a child may need is made free there, before any other code of ours runs in it. What such a lock
guards must be of use whatever another thread was doing to it, or be made anew in the child.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakSet

__all__ = ["free_in_children"]

if TYPE_CHECKING:
    L = TypeVar("L", threading.Lock, threading.RLock, threading.Condition)

_locks: Final[WeakSet[Any]] = WeakSet()


def free_in_children(lock: L) -> L:
    """Return this lock or condition, which every forked child then finds free."""
    _locks.add(lock)
    return lock


def _free_all() -> None:
    for lock in _locks:
        lock._at_fork_reinit()  # as Python's own modules do for theirs


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all)
