"""Stop a node in a forked child: its threads exist only in the parent, so it must not look alive."""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Protocol

__all__ = ["check_threads", "forget_in_children", "handle_here"]


class ForkAware(Protocol):
    """An object with threads."""

    def _after_fork(self) -> None:
        """Mark this object as stopped; called in the child."""


_started: weakref.WeakSet[ForkAware] = weakref.WeakSet()


def forget_in_children(started: ForkAware) -> None:
    """Mark an object as stopped in every process that is forked from this one."""
    _hook_fork()
    _started.add(started)


def _stop_in_child() -> None:
    for started in list(_started):
        started._after_fork()


@cache
def _hook_fork() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_stop_in_child)


_handlers: dict[int, Callable[[int, Any], object]] = {}
_masks = threading.local()


def handle_here(number: int, handler: Callable[[int, Any], object]) -> Any:
    """Handle a signal in this process, but not in forked ones; return the previous handler.

    A task may fork, through multiprocessing for example. If the child kept our handler, SIGTERM could not end it.
    """
    _hook_signals()
    _handlers[number] = handler
    return signal.signal(number, handler)


@cache
def _hook_signals() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_hold_signals, after_in_parent=_let_signals, after_in_child=_reset_signals)


def _hold_signals() -> None:
    # Block signals until the child has reset its handlers: our handler would swallow a signal that comes earlier.
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _handlers)


def _let_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _reset_signals() -> None:
    for number, handler in _handlers.items():
        if signal.getsignal(number) is handler:
            signal.signal(number, signal.SIG_DFL)
    _handlers.clear()
    _let_signals()


def check_threads(what: str) -> None:
    """Raise RuntimeError where threads are turned off."""
    try:
        uwsgi = import_module("uwsgi")  # exists only inside a uWSGI server
    except ImportError:
        return
    if not getattr(uwsgi, "has_threads", True):
        raise RuntimeError(f"{what} needs threads, which uWSGI has turned off; start it with --enable-threads")
