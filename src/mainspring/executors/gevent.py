"""The gevent executor: a greenlet for each run, real threads for coroutine functions."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from typing import Any

import gevent
from gevent.monkey import get_original

from mainspring.errors import RunTimeout
from mainspring.executors.base import BaseExecutor
from mainspring.executors.cooperative import Cooperative, Started, Timer, sort_out
from mainspring.executors.execution import Reporter, Stop
from mainspring.executors.foreign import ForeignThreads
from mainspring.executors.slots import Cancelled
from mainspring.executors.threads import at_least_one
from mainspring.run import Run
from mainspring.task import iscoroutinefunction_partial, maybe_ref

__all__ = ["GeventExecutor"]

_real_thread = get_original("_thread", "get_ident")


class GeventExecutor(BaseExecutor):
    """Executes runs in greenlets of the hub that starts it, coroutine functions in the hub's pool of real threads.

    A time-out or a cancellation raises an exception in the greenlet, which it sees when it next waits for something.
    """

    def __init__(self, *, max_running: int = 1000, timeout_grace: float = 2.0) -> None:
        super().__init__()
        self.slots = at_least_one("max_running", max_running)
        self.timeout_grace = float(timeout_grace)
        self._runs: _GreenletRuns | None = None
        self._threads: ForeignThreads | None = None

    def start(self, scheduler: Any, alias: str) -> None:
        """Make the current thread's hub the one that executes runs."""
        super().start(scheduler, alias)
        self._runs = runs = _GreenletRuns(self, self.slots, self.timeout_grace)
        self._threads = ForeignThreads(self, self.timeout_grace, runs.send_to_threads)

    def shutdown(self, wait: bool = True) -> None:
        """Stop; without `wait` greenlets are killed. One that shuts down its own executor does not wait."""
        if self._runs is None or self._threads is None:
            return
        self._runs.close()
        self._threads.close()
        if not wait:
            self._runs.halt_all()
        elif not self._runs.is_here:
            self._runs.join()
            self._threads.join()

    def submit(self, runs: Sequence[Run], report: Reporter) -> None:
        """Execute runs in greenlets, or in threads if their functions are coroutine functions."""
        if self._runs is None or self._threads is None:
            raise RuntimeError(f"{type(self).__name__} has not been started; call start(scheduler, alias) first")
        in_threads, in_greenlets = sort_out(runs, report, iscoroutinefunction_partial, self)
        self._threads.put(in_threads)
        if in_greenlets:
            self._runs.put(in_greenlets)

    def withdraw(self, older_than: int | None = None) -> list[Run]:
        """Take back runs that the hub has not got to."""
        if self._runs is None or self._threads is None:
            return []
        return self._runs.withdraw(older_than) + self._threads.withdraw(older_than)

    def cancel(self, run_id: str) -> bool:
        """Raise an exception in the greenlet of a run, or cancel its coroutine."""
        if self._runs is None or self._threads is None:
            return False
        return self._runs.cancel(run_id) or self._threads.cancel(run_id)

    @property
    def stuck(self) -> int:
        """Greenlets and threads that did not end at their time-out."""
        return 0 if self._runs is None or self._threads is None else self._runs.stuck + self._threads.stuck


class _GreenletRuns(Cooperative):
    what = "its greenlet"

    def __init__(self, executor: BaseExecutor, limit: int, grace: float) -> None:
        super().__init__(executor, limit, grace)
        self._hub = gevent.get_hub()

    @property
    def is_here(self) -> bool:
        """Whether the caller is one of these runs, which must not wait for itself."""
        current = gevent.getcurrent()
        return any(entry.task is current for entry in list(self._started))

    def send_to_threads(self, take: Callable[[], None]) -> None:
        """Have a real thread of the hub call `take`; asking for one may block, so a greenlet does."""
        if not self._call(gevent.spawn, self._hub.threadpool.spawn, take):
            raise RuntimeError("the hub is no more")

    def _call(self, func: Callable[..., Any], *args: Any) -> bool:
        try:
            loop = self._hub.loop
            call = loop.run_callback if self._is_hub_thread() else loop.run_callback_threadsafe
            call(func, *args)
        except (AttributeError, ValueError):  # destroyed
            return False
        return True

    def _later(self, seconds: float, func: Callable[..., Any], *args: Any) -> Timer:
        return _Timer(self._hub.loop.timer(seconds), func, *args)

    def _start(self, entry: Started) -> Any:
        greenlet = gevent.Greenlet(self._execute, entry)
        # A greenlet that is killed before its first step never gets to the end of `_execute`.
        greenlet.rawlink(lambda ended: self._end(entry, None, ended.value) if entry in self._started else None)
        greenlet.start()
        return greenlet

    def _halt(self, entry: Started) -> None:
        error: BaseException = gevent.GreenletExit("the executor was shut down")
        if entry.stop is Stop.TIMEOUT:
            error = RunTimeout(entry.item[0].policy.timeout)
        elif entry.stop is Stop.CANCEL:
            error = Cancelled()
        entry.task.kill(error, block=False)

    def _turns(self) -> bool:
        return not self._hub.dead and self._hub.thread_ident in sys._current_frames()

    def _wait(self, seconds: float) -> bool:
        if not self._is_hub_thread():
            return super()._wait(seconds)
        # A wait that is not gevent's would keep the hub from turning.
        gevent.sleep(seconds)
        return self._none_left.is_set()

    def _is_hub_thread(self) -> bool:
        return bool(_real_thread() == self._hub.thread_ident)

    def _execute(self, entry: Started) -> None:
        call = entry.item[0].call
        value = error = None
        try:
            value = copy_context().run(maybe_ref(call.func), *call.args, **call.kwargs)
            if value is not None and isinstance(value, Coroutine):
                value = self._hub.threadpool.apply(asyncio.run, (value,))
        except BaseException as exc:
            error = exc
        try:
            self._end(entry, value, error)
        finally:
            error = None  # its traceback holds this frame


class _Timer:
    def __init__(self, watcher: Any, func: Callable[..., Any], *args: Any) -> None:
        self._watcher = watcher
        watcher.start(self._fire, func, args)

    def _fire(self, func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.cancel()
        func(*args)

    def cancel(self) -> None:
        self._watcher.stop()
        self._watcher.close()
