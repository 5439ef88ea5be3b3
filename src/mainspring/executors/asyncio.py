"""The asyncio executor: coroutine functions on an event loop, other functions in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from mainspring.core.quantities import check_count, check_seconds
from mainspring.core.references import iscoroutinefunction_partial
from mainspring.core.run import Run
from mainspring.executors.base import BaseExecutor
from mainspring.executors.cooperative.base import sort_out
from mainspring.executors.cooperative.loops import LoopRuns
from mainspring.executors.cooperative.own_loop import OwnLoopRuns
from mainspring.executors.execution import MayStart, Reporter, may_always_start
from mainspring.executors.threads.pool import ThreadPoolExecutor

__all__ = ["AsyncIOExecutor"]


class AsyncIOExecutor(BaseExecutor):
    """Executes coroutine functions on the scheduler's event loop, other functions in up to `max_workers` threads.

    Without a loop of the scheduler's it has one of its own, in a daemon thread, which no run can end. A coroutine that
    passes its time-out is cancelled. Shutting down on the loop itself cannot wait for what runs there: it goes on, and
    is reported.
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

    def shutdown(self, wait: bool = True) -> None:
        """Stop; without `wait` coroutines are cancelled."""
        runs = self._runs
        if runs is None:
            return
        here = runs.is_here
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
        """Execute runs, on the loop or in threads by what their functions are."""
        if self._runs is None:
            raise RuntimeError(f"{type(self).__name__} has not been started; call start(scheduler, alias) first")
        on_loop, in_threads = sort_out(runs, report, may_start, self._belongs_on_loop, self)
        if in_threads:
            self._threads.submit([item[0] for item in in_threads], report, may_start)
        if on_loop:
            self._runs.put(on_loop)

    def withdraw(self, older_than: int | None = None) -> list[Run]:
        """Take back runs that neither the loop nor a thread has got to."""
        if self._runs is None:
            return []
        return self._runs.withdraw(older_than) + self._threads.withdraw(older_than)

    def cancel(self, run_id: str) -> bool:
        """Cancel the coroutine of a run, or interrupt its thread."""
        return self._runs is not None and (self._runs.cancel(run_id) or self._threads.cancel(run_id))

    def executes_here(self) -> bool:
        """Tell whether the caller is on the loop or in one of the threads."""
        return self._threads.executes_here() or (self._runs is not None and self._runs.is_here)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop on which coroutine functions run, once started."""
        return None if self._runs is None else self._runs.loop

    @property
    def stuck(self) -> int:
        """Coroutines and threads that did not end when they were stopped."""
        return self._threads.stuck + (0 if self._runs is None else self._runs.stuck)

    @property
    def accepting(self) -> bool:
        """Whether to hand over more runs: not once all threads are lost."""
        return self._threads.accepting and super().accepting

    def _loop_of(self, scheduler: Any) -> asyncio.AbstractEventLoop | None:
        loop: asyncio.AbstractEventLoop | None = getattr(scheduler, "_eventloop", None)
        return loop

    def _belongs_on_loop(self, func: Callable[..., Any]) -> bool:
        return iscoroutinefunction_partial(func)
