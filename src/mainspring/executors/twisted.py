"""The Twisted executor: plain functions in the reactor's threads, coroutine functions on its asyncio loop, if any."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from mainspring.core.quantities import check_count, check_seconds
from mainspring.core.references import iscoroutinefunction_partial
from mainspring.core.run import Run
from mainspring.executors.base import BaseExecutor
from mainspring.executors.cooperative.base import sort_out
from mainspring.executors.cooperative.loops import LoopRuns
from mainspring.executors.execution import Item, MayStart, Reporter, give_back, may_always_start
from mainspring.executors.parts import PartsExecutor
from mainspring.executors.threads.slots import Slots
from mainspring.executors.threads.worker_threads import cancel_waiting, take_back, take_one

__all__ = ["TwistedExecutor"]


class TwistedExecutor(PartsExecutor):
    """An executor of plain functions in the threads of the scheduler's reactor.

    Coroutine functions run on the loop of the asyncio reactor; any other reactor runs them in the same threads. A
    shutdown in the reactor's thread cannot wait for the started runs: they go on, and are reported when they end.
    """

    def __init__(self, *, max_running: int = 1000, timeout_grace: float = 2.0) -> None:
        super().__init__()
        self._max_running = check_count("max_running", max_running, text=True)
        self.timeout_grace = check_seconds("timeout_grace", timeout_grace, text=True)
        self._reactor_thread: threading.Thread | None = None
        self._threads: _ReactorThreads | None = None
        self._runs: LoopRuns | None = None

    def start(self, scheduler: Any, alias: str) -> None:
        """Find the scheduler's reactor, or the one that is installed."""
        super().start(scheduler, alias)
        reactor: Any = getattr(scheduler, "_reactor", None)
        if reactor is None:
            from twisted.internet import reactor  # importing it installs one
        reactor.callFromThread(self._note_reactor_thread)
        self._threads = _ReactorThreads(self, self.timeout_grace, reactor)
        loop = getattr(reactor, "_asyncioEventloop", None)
        self._runs = None if loop is None else LoopRuns(self, loop, self._max_running, self.timeout_grace)
        self._parts = (self._threads,) if self._runs is None else (self._runs, self._threads)
        self.slots = self._threads.size if self._runs is None else self._max_running

    def shutdown(self, wait: bool = True) -> None:
        """Stop; without `wait`, cancel the coroutines on the loop."""
        if self._threads is None:
            return
        wait_here = wait and threading.current_thread() is not self._reactor_thread
        if self._runs is not None:
            self._runs.close()
            if not wait:
                self._runs.halt_all()
            if wait_here:
                self._runs.join()
        self._threads.close()
        if wait_here:
            self._threads.join()

    def submit(self, runs: Sequence[Run], report: Reporter, may_start: MayStart = may_always_start) -> None:
        """Execute runs on the loop or in threads, depending on their functions."""
        threads = self._started(self._threads)
        on_loop, in_threads = sort_out(runs, report, may_start, self._belongs_on_loop, self)
        threads.put(in_threads)
        if self._runs is not None and on_loop:
            self._runs.put(on_loop)

    @property
    def accepting(self) -> bool:
        """Whether the executor accepts more runs: no longer once all threads are lost."""
        return self._threads is None or self._threads.stuck < self._threads.size

    def _note_reactor_thread(self) -> None:
        self._reactor_thread = threading.current_thread()

    def _belongs_on_loop(self, func: Any) -> bool:
        return self._runs is not None and iscoroutinefunction_partial(func)


class _ReactorThreads:
    """Runs that wait for a thread of the reactor's pool."""

    def __init__(self, executor: BaseExecutor, grace: float, reactor: Any) -> None:
        self._waiting: deque[Item] = deque()
        self._slots = Slots(executor, grace)
        self._logger: logging.Logger = executor._logger
        self._reactor = reactor
        self._pool = reactor.getThreadPool()
        self.size = int(self._pool.max)
        self._closed = False

    def executes_here(self) -> bool:
        """Return True if the caller is executed in one of the pool's threads."""
        return self._slots.executes_here()

    @property
    def stuck(self) -> int:
        """Threads lost to runs that did not end when they were stopped."""
        return self._slots.stuck

    def put(self, items: Sequence[Item]) -> None:
        """Ask for a thread for each run."""
        if self._closed:
            return give_back(items, self._logger)
        self._waiting.extend(items)
        for _ in items:
            # Only the reactor's thread may call the pool.
            self._reactor.callFromThread(self._pool.callInThread, self._take)
        if self._closed:  # by another thread
            self._give_back()

    def withdraw(self, older_than: int | None) -> list[Run]:
        """Take back runs that no thread has taken."""
        return take_back(self._waiting, older_than)

    def cancel(self, run_id: str) -> bool:
        """Interrupt the thread of a run."""
        return cancel_waiting(self._waiting, run_id, self._logger) or self._slots.cancel(run_id)

    def close(self) -> None:
        """Start no more runs."""
        self._closed = True
        self._give_back()
        self._slots.close()

    def join(self) -> None:
        """Wait until all started runs have ended."""
        self._slots.join()

    def _give_back(self) -> None:
        give_back(iter(lambda: take_one(self._waiting), None), self._logger)

    def _take(self) -> None:
        slot = self._slots.open()
        try:
            item = take_one(self._waiting)
            if item is not None:
                self._slots.execute(slot, item)
        finally:
            self._slots.drop(slot)
