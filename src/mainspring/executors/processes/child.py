"""A child process of the pool reads calls, executes them and sends the answers, until the pipe is closed."""

from __future__ import annotations

import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any

from mainspring.core.references import ref_to_obj
from mainspring.executors.current_run import CURRENT, keep_logs
from mainspring.executors.execution import trim
from mainspring.executors.forks import leave_if_forked
from mainspring.executors.processes.channel import ANSWER, READY, UNREADY, ChildChannel, ChildNotesSink, Message
from mainspring.executors.processes.pickling import dump_failure, dump_value, load_call

__all__ = ["die_with_parent", "preload", "serve"]

_PR_SET_PDEATHSIG = 1


def serve(
    pipe: Connection, initializer: Callable[..., Any] | None, initargs: tuple[Any, ...], strangers: Iterable[Connection]
) -> None:
    """Answer calls until the pipe is closed; close the `strangers`, other children's pipe ends that a fork copied."""
    for end in strangers:
        end.close()
    _live_apart()
    die_with_parent()
    channel = ChildChannel(pipe)
    try:
        if initializer is not None:
            initializer(*initargs)
        leave_if_forked(channel.home)
    except BaseException as error:
        leave_if_forked(channel.home, error)
        trim(error)
        return channel.send(UNREADY, dump_failure(error, 0))
    channel.send(READY)
    keep_logs()
    while (call := channel.receive()) is not None:
        channel.send(ANSWER, _answer(call, channel), call)


def _answer(call: Message, channel: ChildChannel) -> bytes:
    """Execute a call and return its value or exception as bytes; never return in a process that the call forked."""
    try:
        func, args, kwargs, run = load_call(call.body)
        CURRENT.set((run, ChildNotesSink(channel, call, run)))
        if type(func) is str:
            func = ref_to_obj(func)
        if hasattr(func, "__mainspring_execute__"):  # a task with middleware
            func = func.__mainspring_execute__()
        value = func(*args, **kwargs)
        if inspect.iscoroutine(value):
            from mainspring.executors.cooperative.coroutines import run_alone  # asyncio takes 40 ms, and few need it

            value = run_alone(value)
        leave_if_forked(channel.home)
        return dump_value(value)
    except BaseException as error:
        leave_if_forked(channel.home, error)
        trim(error)
        return dump_failure(error, call.attempt)


def preload(modules: Iterable[str]) -> None:
    """Import the modules that calls will need; leave import errors to the runs that need them."""
    for name in modules:
        with suppress(Exception):
            import_module(name)


def _live_apart() -> None:
    """Leave the parent's signals to the parent, and lead a process group that can be killed as a whole."""
    if hasattr(os, "setsid") and os.getpgrp() != os.getpid():
        os.setsid()
    # Set an empty handler: programs that a task starts would inherit an ignored signal.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def die_with_parent() -> None:
    """Make this process end with the one that started it."""
    if sys.platform == "linux":
        import ctypes

        # The signal comes when the *thread* that started us ends; that thread manages us and ends after us.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        return
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.sentinel,), name="mainspring-parent", daemon=True).start()


def _end_after(sentinel: int) -> None:
    wait([sentinel])
    if hasattr(os, "killpg"):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)
