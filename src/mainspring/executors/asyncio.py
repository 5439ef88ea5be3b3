"""The asyncio executor: coroutine functions on an event loop, other functions in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from mainspring.core.quantities import check_count, check_seconds
from mainspring.core.references import iscoroutinefunction_partial
from mainspring.core.run import Run
from mainspring.executors.cooperative.base import sort_out
from mainspring.executors.cooperative.loops import LoopRuns
from mainspring.executors.cooperative.own_loop import OwnLoopRuns
from mainspring.executors.execution import MayStart, Reporter, may_always_start
from mainspring.executors.parts import PartsExecutor
from mainspring.executors.threads.pool import ThreadPoolExecutor

__all__ = ["AsyncIOExecutor"]


class AsyncIOExecutor(PartsExecutor):
    """An executor of coroutine functions on the scheduler's event loop, other functions in `max_workers` threads.

    If the scheduler has no loop, the executor runs one in a daemon thread, and no run can end that loop. A time-out
    cancels the coroutine. A shutdown called on the loop cannot wait for the runs on it: they go on, and are reported
    when they end.
    """

    def __init__(self, *, max_running: int = 1000, max_workers: int = 10, timeout_grace: float = 2.0) -> None:
        super().__init__()
        self.slots = check_count("max_running", max_running, text=True)
        self.timeout_grace = check_seconds("timeout_grace", timeout_grace, text=True)
        self._threads = ThreadPoolExecutor(max_workers, timeout_grace=timeout_grace)
        self._runs: LoopRuns | None = None

    def start(self, scheduler: Any, alias: str) -> None:
        """Find the scheduler's loop, or start one."""
        super().start(scheduler, alias)
        loop = self._loop_of(scheduler)
        if loop is None:
            self._runs = OwnLoopRuns(self, f"mainspring-{alias}-loop", self.slots, self.timeout_grace)
        else:
            self._runs = LoopRuns(self, loop, self.slots, self.timeout_grace)
        self._threads.now, self._threads.notify = self.now, self.notify
        self._threads.start(scheduler, alias)
        self._parts = (self._runs, self._threads)

    def shutdown(self, wait: bool = True) -> None:
        """Stop; without `wait`, cancel the coroutines."""
        runs = self._runs
        if runs is None:
            return
        here = runs.executes_here()
        runs.close()
        if not wait:
            runs.halt_all()
        self._threads.shutdown(wait and not here)
        if wait and here:
            self._threads.finish_at_exit()
        if wait and not here:
            runs.join()
            if isinstance(runs, OwnLoopRuns) and not runs.stuck:
                runs.thread.join()

    def submit(self, runs: Sequence[Run], report: Reporter, may_start: MayStart = may_always_start) -> None:
        """Execute coroutine functions on the loop, all others in threads."""
        loop_runs = self._started(self._runs)
        on_loop, in_threads = sort_out(runs, report, may_start, self._belongs_on_loop, self)
        if in_threads:
            self._threads.submit([item[0] for item in in_threads], report, may_start)
        if on_loop:
            loop_runs.put(on_loop)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop on which coroutine functions run, once started."""
        return None if self._runs is None else self._runs.loop

    @property
    def accepting(self) -> bool:
        """Whether the executor accepts more runs: no longer once all its threads are lost."""
        return self._threads.accepting and super().accepting

    def _loop_of(self, scheduler: Any) -> asyncio.AbstractEventLoop | None:
        loop: asyncio.AbstractEventLoop | None = getattr(scheduler, "_eventloop", None)
        return loop

    def _belongs_on_loop(self, func: Callable[..., Any]) -> bool:
        return iscoroutinefunction_partial(func)
