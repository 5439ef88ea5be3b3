"""A scheduler for Twisted applications."""

from __future__ import annotations

from typing import Any

from mainspring.errors import install_command

try:
    from twisted.python import threadable
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"TwistedScheduler needs twisted: {install_command('twisted')} ({error})", name=error.name
    ) from error

from mainspring.core.references import maybe_ref
from mainspring.events import SchedulerEvent
from mainspring.executors.base import BaseExecutor
from mainspring.schedulers.base import BaseScheduler

__all__ = ["TwistedScheduler"]


class TwistedScheduler(BaseScheduler):
    """A scheduler on the thread pool of a Twisted reactor (the given or the global one)."""

    _options = frozenset({"reactor"})

    def _configure(self, options: dict[str, Any]) -> None:
        self._reactor: Any = maybe_ref(options.get("reactor"))

    def start(self, paused: bool = False) -> None:
        """Start beside the reactor; return at once."""
        if self._reactor is None:
            from twisted.internet import reactor

            self._reactor = reactor
        super().start(paused)

    def _on_reactor(self) -> bool:
        return bool(self._reactor.running and threadable.isInIOThread())  # type: ignore[no-untyped-call]

    def _must_not_block(self) -> bool:
        # Reports and coroutines need the reactor's thread: waiting on it would keep runs from ending.
        return self._on_reactor() or super()._must_not_block()

    def _deliver(self, event: SchedulerEvent) -> None:
        if self._reactor is None or not self._reactor.running or self._on_reactor():
            super()._deliver(event)
        else:
            self._reactor.callFromThread(super()._deliver, event)

    def _create_default_executor(self) -> BaseExecutor:
        from mainspring.executors.twisted import TwistedExecutor

        return TwistedExecutor()
