"""A scheduler for gevent programs."""

from __future__ import annotations

from typing import Any

import gevent
from gevent.event import Event

from mainspring.executors.base import BaseExecutor
from mainspring.schedulers.base import BaseScheduler

__all__ = ["GeventScheduler"]


class GeventScheduler(BaseScheduler):
    """Runs jobs in greenlets of the hub that starts it."""

    _stopped: Any = None

    def start(self, paused: bool = False) -> Any:
        """Start; return a greenlet that ends when the scheduler is shut down, for the program to join."""
        self._hub = gevent.get_hub()
        self._stopped = stopped = Event()
        super().start(paused)
        return gevent.spawn(stopped.wait)

    def shutdown(self, wait: bool = True) -> None:
        """Stop scheduling and let the greenlet of start() end."""
        super().shutdown(wait)
        if self._stopped is not None:
            if gevent.getcurrent() is self._hub or gevent.get_hub() is self._hub:
                self._stopped.set()
            else:
                self._hub.loop.run_callback_threadsafe(self._stopped.set)

    def _must_not_block(self) -> bool:
        # Joining a real thread from the hub's own would stop the greenlets that are waited for.
        from gevent import monkey

        on_hub = gevent.get_hub() is getattr(self, "_hub", None)
        return (on_hub and not monkey.is_module_patched("threading")) or super()._must_not_block()

    def _finish(self, node: Any, wait: bool, close: Any) -> None:
        from gevent import monkey

        if wait and gevent.get_hub() is self._hub and not monkey.is_module_patched("threading"):
            node.drain(finish=True)
            self._hub.threadpool.apply(close)  # waits in this greenlet only; the others go on
        else:
            super()._finish(node, wait, close)

    def _create_default_executor(self) -> BaseExecutor:
        from mainspring.executors.gevent import GeventExecutor

        return GeventExecutor()
