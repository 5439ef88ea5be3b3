"""A scheduler that is the whole program."""

from __future__ import annotations

import threading

from mainspring.schedulers.base import BaseScheduler

__all__ = ["BlockingScheduler"]


class BlockingScheduler(BaseScheduler):
    """`start` returns when the scheduler is shut down."""

    _stopped: threading.Event | None = None

    def start(self, paused: bool = False) -> None:
        """Start and stay here until shutdown() is called; Ctrl-C ends it cleanly."""
        self._stopped = stopped = threading.Event()
        super().start(paused)
        try:
            # In slices: on some platforms a wait without end cannot be interrupted by Ctrl-C.
            while not stopped.wait(3600):
                pass
        except (KeyboardInterrupt, SystemExit):
            if self.running:
                self.shutdown()
            raise

    def shutdown(self, wait: bool = True) -> None:
        """Stop scheduling and let start() return."""
        super().shutdown(wait)
        if self._stopped is not None:
            self._stopped.set()

    def __enter__(self) -> BlockingScheduler:
        raise TypeError("a BlockingScheduler blocks in start(); use BackgroundScheduler in a with statement")
