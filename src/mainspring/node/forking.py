"""What was started before a fork must not look alive in the child, where its threads are not."""

from __future__ import annotations

import os
import weakref
from functools import cache
from importlib import import_module
from typing import Protocol

__all__ = ["check_threads", "forget_in_children"]


class Forgetful(Protocol):
    """Something with threads."""

    def _after_fork(self) -> None:
        """Be stopped, in the child."""


_started: weakref.WeakSet[Forgetful] = weakref.WeakSet()


def forget_in_children(started: Forgetful) -> None:
    """See to it that it does not look alive in a process that is forked from this one."""
    _hook_fork()
    _started.add(started)


def _stop_in_child() -> None:
    for started in list(_started):
        started._after_fork()


@cache
def _hook_fork() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_stop_in_child)


def check_threads(what: str) -> None:
    """Raise RuntimeError where threads are turned off."""
    try:
        uwsgi = import_module("uwsgi")  # there only inside a uWSGI server
    except ImportError:
        return
    if not getattr(uwsgi, "has_threads", True):
        raise RuntimeError(f"{what} needs threads, which uWSGI has turned off; start it with --enable-threads")
