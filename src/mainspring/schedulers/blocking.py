"""A scheduler for programs whose only work is scheduling."""

from __future__ import annotations

import threading
from typing import NoReturn

from mainspring.errors import SchedulerAlreadyRunningError
from mainspring.schedulers.base import BaseScheduler

__all__ = ["BlockingScheduler"]


class BlockingScheduler(BaseScheduler):
    """A scheduler whose `start` returns only after `shutdown`."""

    _stopped: threading.Event | None = None
    _interrupted = False

    def start(self, paused: bool = False) -> None:
        """Start, and return after `shutdown`. Ctrl-C waits for started runs, then raises KeyboardInterrupt."""
        if self.running:
            raise SchedulerAlreadyRunningError
        self._stopped = stopped = threading.Event()
        self._interrupted = False
        try:
            super().start(paused)
            # Wait in slices: a signal that arrives just as a slice begins is handled when that slice ends.
            while not stopped.wait(1):
                pass
        except (KeyboardInterrupt, SystemExit):
            if self.running:
                self.shutdown()
                self._interrupted = True
            raise

    def shutdown(self, wait: bool = True) -> None:
        """Stop scheduling, and let `start` return."""
        if self._interrupted and not self.running:
            # An interrupted program may call shutdown() itself, as APScheduler programs do.
            self._interrupted = False
            return
        stopped = self._stopped
        try:
            super().shutdown(wait)
        finally:
            if stopped is not None and not self.running:
                stopped.set()

    def __enter__(self) -> NoReturn:
        raise TypeError("a BlockingScheduler blocks in start(); use BackgroundScheduler in a with statement")
