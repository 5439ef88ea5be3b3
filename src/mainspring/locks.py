"""Locks that are free in a forked child.

A web server that forks its workers, multiprocessing, and `os.fork()` in a task all copy every lock as it is. If another
thread holds a lock at that moment, that thread does not exist in the child, and the child would wait for ever. So this
module frees every lock that a child may need, before any other code of ours runs there. The data that such a lock
guards must be usable whatever another thread was doing to them, or the child must make them anew.
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
    """Return this lock or condition, and free it in every forked child from now on."""
    _locks.add(lock)
    return lock


def _free_all() -> None:
    for lock in _locks:
        lock._at_fork_reinit()  # as Python's own modules do for theirs


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all)
