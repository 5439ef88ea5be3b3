"""A scheduler for Tornado applications."""

from __future__ import annotations

from typing import Any

from mainspring.errors import install_command

try:
    from tornado.ioloop import IOLoop
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"TornadoScheduler needs tornado: {install_command('tornado')} ({error})", name=error.name
    ) from error

from mainspring.core.references import maybe_ref
from mainspring.executors.base import BaseExecutor
from mainspring.schedulers.asyncio import AsyncIOScheduler

__all__ = ["TornadoScheduler"]


class TornadoScheduler(AsyncIOScheduler):
    """A scheduler for a Tornado IOLoop (the given or the current one); plain functions run in threads."""

    _options = frozenset({"io_loop"})
    _ioloop: IOLoop | None = None

    def _configure(self, options: dict[str, Any]) -> None:
        self._given_ioloop: IOLoop | None = maybe_ref(options.get("io_loop"))

    def start(self, paused: bool = False) -> None:
        """Start on the IOLoop; return at once."""
        self._ioloop = self._given_ioloop or IOLoop.current()
        # Since version 6, Tornado's loop wraps an asyncio loop.
        self._given_loop = self._ioloop.asyncio_loop  # type: ignore[attr-defined]
        super().start(paused)

    def _create_default_executor(self) -> BaseExecutor:
        from mainspring.executors.tornado import TornadoExecutor

        return TornadoExecutor()
