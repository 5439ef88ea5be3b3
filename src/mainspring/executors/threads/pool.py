"""The thread pool."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

from mainspring.core.quantities import check_count, check_seconds
from mainspring.core.run import Run
from mainspring.errors import near
from mainspring.executors.execution import Item, MayStart, Reporter, failed, may_always_start, tell
from mainspring.executors.parts import PartsExecutor
from mainspring.executors.threads.slots import Slot, Slots
from mainspring.executors.threads.worker_threads import WorkerThread, WorkerThreads, take_back, take_one

__all__ = ["ThreadPoolExecutor", "check_options"]

_OPTIONS = ("thread_name_prefix", "initializer", "initargs")


class ThreadPoolExecutor(PartsExecutor):
    """An executor that executes runs in up to `max_workers` daemon threads.

    A time-out raises RunTimeout in the thread of the run. A run that goes on for another `timeout_grace` seconds (it
    sits in C code, or swallows the exception) costs the pool a slot: see `stuck`.
    """

    threads_may_settle = True

    def __init__(
        self, max_workers: int = 10, pool_kwargs: Mapping[str, Any] | None = None, *, timeout_grace: float = 2.0
    ) -> None:
        super().__init__()
        self.slots = check_count("max_workers", max_workers, text=True)
        self.timeout_grace = check_seconds("timeout_grace", timeout_grace, text=True)
        self._options = check_options(type(self).__name__, pool_kwargs, _OPTIONS)
        self._threads: _PoolThreads | None = None

    def start(self, scheduler: Any, alias: str) -> None:
        """Get ready; threads start as they are needed."""
        super().start(scheduler, alias)
        prefix = self._options.get("thread_name_prefix") or f"mainspring-{alias}"
        self._threads = _PoolThreads(self, str(prefix), self._options)
        self._parts = (self._threads,)

    def shutdown(self, wait: bool = True) -> None:
        """Stop; started runs go on, and are reported when they end."""
        if self._threads is not None:
            self._threads.close()
            if wait:
                self._threads.join()

    def finish_at_exit(self) -> None:
        """Make the interpreter wait at its exit for the started runs, for a caller of `shutdown` that must not wait."""
        if self._threads is not None:
            atexit.register(self._threads.join)

    def submit(self, runs: Sequence[Run], report: Reporter, may_start: MayStart = may_always_start) -> None:
        """Execute runs in threads, in this order."""
        threads = self._threads or self._started(self._threads)
        threads.put(zip(runs, repeat(report), repeat(self.now()), repeat(may_start), strict=False))

    def withdraw(self, older_than: int | None = None) -> list[Run]:
        """Take back runs that no thread has taken yet."""
        return [] if self._threads is None else take_back(self._threads.items, older_than)

    @property
    def stuck(self) -> int:
        """Slots lost to runs that did not end when they were stopped."""
        return 0 if self._threads is None else self._threads.slots.stuck

    @property
    def usable_slots(self) -> int:
        """The number of slots that are not lost, which the node reads before every claim and fire."""
        return self.slots if self._threads is None else max(0, self.slots - self._threads.slots.stuck)


class _PoolThreads(WorkerThreads[WorkerThread]):
    def __init__(self, executor: ThreadPoolExecutor, name: str, options: Mapping[str, Any]) -> None:
        super().__init__(executor.slots, name, executor._logger)
        self.slots = Slots(executor, executor.timeout_grace)
        self._initializer: Callable[..., Any] | None = options.get("initializer")
        self._initargs: tuple[Any, ...] = tuple(options.get("initargs", ()))

    def member(self) -> WorkerThread:
        return WorkerThread()

    def serve(self, member: WorkerThread) -> None:
        slot = self.slots.open(member.gone)
        try:
            self._prepare(member)
            self._work(member, slot)
        finally:
            self.slots.drop(slot)

    def _work(self, member: WorkerThread, slot: Slot) -> None:
        items, idle, execute = self.items, self.idle, self.slots.execute
        item: Item | None
        while not self.closed:
            try:
                item = items.popleft()
            except IndexError:
                item = None  # do not keep the run alive while this thread sleeps
                self.park(member)
                continue
            if items and (idle or self.hiring):
                self.wake()
            execute(slot, item)

    def _prepare(self, member: WorkerThread) -> None:
        """Run the initializer. While it raises, fail one run after another with its error."""
        while self._initializer is not None and not self.closed:
            try:
                return self._initializer(*self._initargs)  # type: ignore[no-any-return]
            except BaseException as error:
                self._logger.exception("the initializer of thread %s failed", threading.current_thread().name)
                item = take_one(self.items)
                if item is not None:
                    now = self.slots.now()
                    tell(item[1], failed(item[0], error, now, now), self._logger)
            if not self.items:
                self.park(member)

    def cancel_started(self, run_id: str) -> bool:
        return self.slots.cancel(run_id)

    def executes_here(self) -> bool:
        return self.slots.executes_here()

    @property
    def stuck(self) -> int:
        return self.slots.stuck

    def close(self) -> None:
        super().close()
        self.slots.close()

    def gave_up(self, thread: threading.Thread) -> bool:
        return self.slots.has_lost(thread)

    def join(self) -> None:
        super().join()
        self.slots.join()


def check_options(owner: str, given: Mapping[str, Any] | None, known: Sequence[str]) -> dict[str, Any]:
    """Return the pool's options, or raise TypeError naming one it does not know."""
    options = dict(given or {})
    for name in options:
        if name not in known:
            raise TypeError(f"{owner} knows no option {name!r} in pool_kwargs{near(name, known)}")
    return options
