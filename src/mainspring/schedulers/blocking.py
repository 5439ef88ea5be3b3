"""A scheduler for programs that do nothing else."""

from __future__ import annotations

import threading
from typing import NoReturn

from mainspring.errors import SchedulerAlreadyRunningError
from mainspring.schedulers.base import BaseScheduler

__all__ = ["BlockingScheduler"]


class BlockingScheduler(BaseScheduler):
    """`start` returns when the scheduler is shut down."""

    _stopped: threading.Event | None = None
    _interrupted = False

    def start(self, paused: bool = False) -> None:
        """Start, and return after shutdown(); Ctrl-C waits for started runs, then is raised."""
        if self.running:
            raise SchedulerAlreadyRunningError
        self._stopped = stopped = threading.Event()
        self._interrupted = False
        try:
            super().start(paused)
            # Wait in slices: a signal that arrives just as a slice begins is seen when it ends.
            while not stopped.wait(1):
                pass
        except (KeyboardInterrupt, SystemExit):
            if self.running:
                self.shutdown()
                self._interrupted = True
            raise

    def shutdown(self, wait: bool = True) -> None:
        """Stop scheduling and let start() return."""
        if self._interrupted and not self.running:
            # An interrupted program may call shutdown() itself, as APScheduler's users do.
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
