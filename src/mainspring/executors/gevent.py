"""The gevent executor: a greenlet for each run, real threads for coroutine functions."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any

import gevent
from gevent.monkey import get_original

from mainspring.core.quantities import check_count, check_seconds
from mainspring.core.references import iscoroutinefunction_partial, maybe_ref
from mainspring.core.run import Run
from mainspring.errors import RunTimeout
from mainspring.executors.base import BaseExecutor
from mainspring.executors.cooperative.base import Cooperative, StartedEntry, Timer, sort_out
from mainspring.executors.cooperative.coroutines import run_alone
from mainspring.executors.execution import MayStart, Reporter, StopReason, may_always_start
from mainspring.executors.forks import leave_if_forked
from mainspring.executors.parts import PartsExecutor
from mainspring.executors.threads.slots import ThreadCancelled

__all__ = ["GeventExecutor"]

_real_thread = get_original("_thread", "get_ident")


class GeventExecutor(PartsExecutor):
    """An executor of runs in greenlets of the hub that starts it, and of coroutine functions in the hub's real threads.

    A time-out or a cancellation raises an exception in the greenlet the next time it waits.
    """

    def __init__(self, *, max_running: int = 1000, timeout_grace: float = 2.0) -> None:
        super().__init__()
        self.slots = check_count("max_running", max_running, text=True)
        self.timeout_grace = check_seconds("timeout_grace", timeout_grace, text=True)
        self._greenlets: _GreenletRuns | None = None
        self._coroutines: _CoroutineRuns | None = None
        self._kinds: tuple[_GreenletRuns, ...] = ()

    def start(self, scheduler: Any, alias: str) -> None:
        """Use the hub of the current thread to execute runs."""
        super().start(scheduler, alias)
        self._greenlets = _GreenletRuns(self, self.slots, self.timeout_grace)
        self._coroutines = _CoroutineRuns(self, gevent.get_hub().threadpool.maxsize, self.timeout_grace)
        self._parts = self._kinds = (self._greenlets, self._coroutines)

    def shutdown(self, wait: bool = True) -> None:
        """Stop; without `wait` kill the greenlets. A greenlet that shuts down its own executor does not wait."""
        for runs in self._kinds:
            runs.close()
        if not wait:
            for runs in self._kinds:
                runs.halt_all()
        elif not self.executes_here():
            for runs in self._kinds:
                runs.join()

    def submit(self, runs: Sequence[Run], report: Reporter, may_start: MayStart = may_always_start) -> None:
        """Execute runs in greenlets, or in threads if their functions are coroutine functions."""
        coroutines, greenlets = self._started(self._coroutines), self._started(self._greenlets)
        in_threads, in_greenlets = sort_out(runs, report, may_start, iscoroutinefunction_partial, self)
        if in_threads:
            coroutines.put(in_threads)
        if in_greenlets:
            greenlets.put(in_greenlets)


class _GreenletRuns(Cooperative):
    what = "its greenlet"

    def __init__(self, executor: BaseExecutor, limit: int, grace: float) -> None:
        super().__init__(executor, limit, grace)
        self._hub = gevent.get_hub()

    def executes_here(self) -> bool:
        """Return True if the caller is one of these runs, and so must not wait for them to end."""
        current = gevent.getcurrent()
        return any(entry.task is not None and entry.task.greenlet is current for entry in list(self._started))

    def _call(self, func: Callable[..., Any], *args: Any) -> bool:
        try:
            loop = self._hub.loop
            call = loop.run_callback if self._is_hub_thread() else loop.run_callback_threadsafe
            call(func, *args)
        except (AttributeError, ValueError):  # destroyed
            return False
        return True

    def _later(self, seconds: float, func: Callable[..., Any], *args: Any) -> Timer:
        return _GreenletTimer(self._hub.loop.timer(seconds), func, *args)

    def _start(self, entry: StartedEntry) -> Any:
        greenlet = gevent.Greenlet(self._execute, entry)
        # A greenlet that is killed before its first step never gets to the end of `_execute`.
        greenlet.rawlink(lambda ended: self._end(entry, None, ended.value) if entry in self._started else None)
        greenlet.start()
        return _GreenletTask(greenlet)

    def _halt(self, entry: StartedEntry) -> None:
        error: BaseException = gevent.GreenletExit("the executor was shut down")
        if entry.stop is StopReason.TIMEOUT:
            error = RunTimeout(entry.item[0].policy.timeout)
        elif entry.stop is StopReason.CANCEL:
            error = ThreadCancelled()
        entry.task.greenlet.kill(error, block=False)

    def _turns(self) -> bool:
        if self._hub.dead or self._hub.thread_ident not in sys._current_frames():
            return False
        # At the end of the program, the hub of the main thread still exists but no longer runs.
        main = threading.main_thread()
        return main.is_alive() or main.ident != self._hub.thread_ident

    def _wait(self, seconds: float) -> bool:
        if not self._is_hub_thread():
            return super()._wait(seconds)
        # Any other wait than gevent's would block the hub.
        gevent.sleep(seconds)
        return self._none_left.is_set()

    def _is_hub_thread(self) -> bool:
        return bool(_real_thread() == self._hub.thread_ident)

    def _execute(self, entry: StartedEntry) -> None:
        value = error = None
        try:
            value = self._result_of(entry)
        except BaseException as exc:
            error = exc
        try:
            self._end(entry, value, error)
        finally:
            error = None  # its traceback holds this frame

    def _result_of(self, entry: StartedEntry) -> Any:
        call = entry.item[0].call
        value = copy_context().run(maybe_ref(call.func), *call.args, **call.kwargs)
        if value is not None and isinstance(value, Coroutine):
            value = self._hub.threadpool.apply(run_alone, (value,))
        return value


class _CoroutineRuns(_GreenletRuns):
    """Each run in a real thread of the hub's pool, with a greenlet that waits for it and reports it."""

    what = "its coroutine, which swallows cancellation,"

    def _halt(self, entry: StartedEntry) -> None:
        # Set the flag first, then read the task. The thread sets its task first, then reads the flag.
        entry.task.halted = True
        inner: asyncio.Task[Any] | None = entry.task.inner
        if inner is not None:
            with suppress(RuntimeError):  # the loop is closed, so the run is over
                inner.get_loop().call_soon_threadsafe(inner.cancel)

    def _result_of(self, entry: StartedEntry) -> Any:
        value, error = self._hub.threadpool.apply(asyncio.run, (self._await(entry),))
        if error is not None:
            raise error
        return value

    async def _await(self, entry: StartedEntry) -> tuple[Any, BaseException | None]:
        call, task = entry.item[0].call, entry.task
        task.inner = asyncio.current_task()
        try:
            if task.halted:
                raise asyncio.CancelledError
            value = await maybe_ref(call.func)(*call.args, **call.kwargs)
            leave_if_forked(self._home)
            return value, None
        except BaseException as error:  # otherwise the pool would print it, and SystemExit would stop the loop
            leave_if_forked(self._home, error)
            return None, error


class _GreenletTask:
    def __init__(self, greenlet: Any) -> None:
        self.greenlet = greenlet
        self.inner: asyncio.Task[Any] | None = None
        self.halted = False


class _GreenletTimer:
    def __init__(self, watcher: Any, func: Callable[..., Any], *args: Any) -> None:
        self._watcher = watcher
        watcher.start(self._fire, func, args)

    def _fire(self, func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.cancel()
        func(*args)

    def cancel(self) -> None:
        self._watcher.stop()
        self._watcher.close()
