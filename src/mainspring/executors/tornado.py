"""The Tornado executor: coroutine functions on the IOLoop, other functions in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tornado.gen import is_coroutine_function

from mainspring.executors.asyncio import AsyncIOExecutor

__all__ = ["TornadoExecutor"]


class TornadoExecutor(AsyncIOExecutor):
    """An executor of native and `gen.coroutine` functions on the scheduler's IOLoop, of others in threads."""

    def __init__(self, max_workers: int = 10, *, max_running: int = 1000, timeout_grace: float = 2.0) -> None:
        super().__init__(max_running=max_running, max_workers=max_workers, timeout_grace=timeout_grace)

    def _loop_of(self, scheduler: Any) -> asyncio.AbstractEventLoop | None:
        # Since Tornado 5, an IOLoop wraps an asyncio loop.
        io_loop = getattr(scheduler, "_ioloop", None)
        loop: asyncio.AbstractEventLoop | None = getattr(io_loop, "asyncio_loop", None)
        return loop

    def _belongs_on_loop(self, func: Callable[..., Any]) -> bool:
        return super()._belongs_on_loop(func) or is_coroutine_function(func)
