"""A scheduler for asyncio programs: coroutine functions run on the loop, and store calls never block it."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from mainspring.core.references import maybe_ref
from mainspring.events import SchedulerEvent
from mainspring.executors.base import BaseExecutor
from mainspring.schedulers.base import BaseScheduler

__all__ = ["AsyncIOScheduler"]


class AsyncIOScheduler(BaseScheduler):
    """A scheduler that runs jobs on an asyncio event loop: the given loop, or the one running when it starts."""

    _options = frozenset({"event_loop"})
    _eventloop: asyncio.AbstractEventLoop | None = None

    def _configure(self, options: dict[str, Any]) -> None:
        self._given_loop: asyncio.AbstractEventLoop | None = maybe_ref(options.get("event_loop"))

    def start(self, paused: bool = False) -> None:
        """Start on the given loop, or on the running one if none was given; return at once."""
        try:
            self._eventloop = self._given_loop or asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(
                "AsyncIOScheduler.start() needs a running event loop: call it inside a coroutine, or pass event_loop="
            ) from None
        super().start(paused)

    async def stop(self, wait: bool = True) -> None:
        """Shut down and return when that is done, without blocking the loop."""
        await asyncio.get_running_loop().run_in_executor(None, self.shutdown, wait)

    async def __aenter__(self) -> Self:
        if not self.running:
            self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self.running:
            await self.stop()

    def _must_not_block(self) -> bool:
        return _is_running(self._eventloop) or super()._must_not_block()

    def _deliver(self, event: SchedulerEvent) -> None:
        loop = self._eventloop
        if loop is None or loop.is_closed() or _is_running(loop):
            super()._deliver(event)
            return
        try:
            loop.call_soon_threadsafe(super()._deliver, event)
        except RuntimeError:  # the loop closed between the check and the call
            super()._deliver(event)

    def _create_default_executor(self) -> BaseExecutor:
        from mainspring.executors.asyncio import AsyncIOExecutor

        return AsyncIOExecutor()


def _is_running(loop: asyncio.AbstractEventLoop | None) -> bool:
    """Return True if the calling thread is running this loop."""
    try:
        return loop is not None and asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
