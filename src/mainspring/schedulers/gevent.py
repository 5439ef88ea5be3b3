"""A scheduler for gevent programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mainspring.errors import install_command

try:
    import gevent
    from gevent.event import Event
    from gevent.monkey import get_original, is_module_patched
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"GeventScheduler needs gevent: {install_command('gevent')} ({error})", name=error.name
    ) from error

from mainspring.events import SchedulerEvent
from mainspring.executors.base import BaseExecutor
from mainspring.node.node import Node
from mainspring.schedulers.base import BaseScheduler

__all__ = ["GeventScheduler"]

_real_thread = get_original("_thread", "get_ident")


class GeventScheduler(BaseScheduler):
    """A scheduler that runs jobs and listeners in greenlets of its hub, with or without monkey patching."""

    _hub: Any = None
    _stopped: Any = None

    def start(self, paused: bool = False) -> Any:
        """Start; return a greenlet that ends at shutdown, so the program can join it."""
        if not self.running:
            self._hub = gevent.get_hub()
            self._stopped = Event()
        stopped = self._stopped
        super().start(paused)
        return gevent.spawn(stopped.wait)

    def shutdown(self, wait: bool = True) -> None:
        """Stop scheduling, and let the greenlet that `start` returned end."""
        stopped = self._stopped
        super().shutdown(wait)
        if self._on_hub():
            stopped.set()
        else:
            self._hub.loop.run_callback_threadsafe(stopped.set)

    def _on_hub(self) -> bool:
        # Compare real threads: asking gevent for another thread's hub would create one.
        return self._hub is not None and bool(_real_thread() == self._hub.thread_ident)

    def _deliver(self, event: SchedulerEvent) -> None:
        if self._hub is None or self._on_hub():
            super()._deliver(event)
        else:
            # A listener may block its greenlet, so each event from a real thread gets its own greenlet.
            self._hub.loop.run_callback_threadsafe(gevent.spawn, super()._deliver, event)

    def _finish(self, node: Node, wait: bool, close: Callable[[], None]) -> None:
        if wait and self._on_hub() and not is_module_patched("threading") and not self._must_not_block():
            # Joining real threads here would block the greenlets that they wait for. Let only this greenlet wait.
            node.drain(finish=True)
            self._hub.threadpool.apply(close)
        else:
            super()._finish(node, wait, close)

    def _create_default_executor(self) -> BaseExecutor:
        from mainspring.executors.gevent import GeventExecutor

        return GeventExecutor()
