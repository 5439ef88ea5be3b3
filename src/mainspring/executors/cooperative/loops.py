"""Coroutine functions on an event loop, many at once."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from mainspring.core.references import maybe_ref
from mainspring.executors.cooperative.base import Cooperative, StartedEntry, Timer

if TYPE_CHECKING:
    from mainspring.executors.base import BaseExecutor

__all__ = ["LoopRuns"]


class LoopRuns(Cooperative):
    """Coroutine runs as tasks of an asyncio loop."""

    what = "its coroutine, which swallows cancellation,"

    def __init__(self, executor: BaseExecutor, loop: asyncio.AbstractEventLoop, limit: int, grace: float) -> None:
        super().__init__(executor, limit, grace)
        self.loop = loop

    def executes_here(self) -> bool:
        """Return True if the caller is on the loop, and so must not wait for it."""
        return asyncio._get_running_loop() is self.loop

    def _call(self, func: Callable[..., Any], *args: Any) -> bool:
        try:
            self.loop.call_soon_threadsafe(func, *args)
        except RuntimeError:  # closed
            return False
        return True

    def _later(self, seconds: float, func: Callable[..., Any], *args: Any) -> Timer:
        return self.loop.call_later(seconds, func, *args)

    def _start(self, entry: StartedEntry) -> asyncio.Task[None]:
        return self.loop.create_task(self._execute(entry), name=f"run {entry.item[0].id}")

    def _halt(self, entry: StartedEntry) -> None:
        unborn = inspect.getcoroutinestate(entry.task.get_coro()) == inspect.CORO_CREATED
        # Use an empty context: the current one may belong to another run, which has set a timer.
        Context().run(entry.task.cancel)
        if unborn:  # a task that never takes its first step cannot report itself
            self._end(entry, None, asyncio.CancelledError())

    def _turns(self) -> bool:
        return self.loop.is_running()

    def _abandon(self) -> None:
        unborn = [entry.task.get_coro() for entry in list(self._started) if entry.task is not None]
        super()._abandon()
        for coroutine in unborn:
            if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                coroutine.close()

    async def _execute(self, entry: StartedEntry) -> None:
        call = entry.item[0].call
        value = error = None
        try:
            value = await maybe_ref(call.func)(*call.args, **call.kwargs)
        except BaseException as exc:  # SystemExit and KeyboardInterrupt, too, would stop the loop
            error = exc
        try:
            self._end(entry, value, error)
        finally:
            error = None  # its traceback holds this frame
