"""Wait for several stores at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Final

__all__ = ["StoreWatch"]

WATCH_SECONDS: Final = 5.0
FAILURE_PAUSE_SECONDS: Final = 1.0
"""Ask a store that failed again after this many seconds."""

Wait = Callable[[int, float], int]


class StoreWatch:
    """One cursor for the changes of several stores; a thread per store listens from the first `wait` on."""

    def __init__(self, waits: Sequence[Wait]) -> None:
        self._waits = waits
        self._changed = threading.Condition()
        self._cursor = 1
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._pid = 0

    def tell(self) -> None:
        """Wake whoever waits."""
        with self._changed:
            self._cursor += 1
            self._changed.notify_all()

    def wait(self, cursor: int, timeout: float) -> int:
        """Sleep until one of the stores has changed since `cursor`, or for `timeout` seconds; return the new cursor."""
        with self._changed:
            if not self._threads or self._pid != os.getpid():  # a fork leaves the threads behind
                self._listen()
            self._changed.wait_for(lambda: self._cursor != cursor, timeout)
            return self._cursor

    def stop(self) -> None:
        """Tell the threads to end; a thread that sleeps in a store ends when the store returns."""
        self._stopped.set()
        self.tell()

    def join(self) -> None:
        """Wait briefly for the threads; leave behind one that hangs in a dead store."""
        with self._changed:
            threads, self._threads = self._threads, []
        for thread in threads:
            thread.join(1.0)

    def _listen(self) -> None:
        self._pid, self._stopped = os.getpid(), threading.Event()
        self._threads = [
            threading.Thread(target=self._follow, args=(wait, self._stopped), name="mainspring-split", daemon=True)
            for wait in self._waits
        ]
        for thread in self._threads:
            thread.start()

    def _follow(self, wait: Wait, stopped: threading.Event) -> None:
        cursor = 0
        while not stopped.is_set():
            try:
                seen = wait(cursor, WATCH_SECONDS)
            except Exception:  # the user of the store reports the error
                stopped.wait(FAILURE_PAUSE_SECONDS)
                seen = -1  # changes may have been missed meanwhile
            if seen != cursor:
                cursor = max(seen, 0)
                self.tell()
