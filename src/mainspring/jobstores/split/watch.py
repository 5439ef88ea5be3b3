"""Wait for several stores at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from mainspring.jobstores.split.changes import ChangeSignal

__all__ = ["StoreWatch", "Wait"]

WATCH_SECONDS: Final = 5.0

Wait = Callable[[int, float], int]


class StoreWatch(ChangeSignal):
    """One cursor for the changes of several stores; a thread per store listens from the first `wait` on."""

    def __init__(self, waits: Sequence[Wait]) -> None:
        super().__init__([partial(self._follow, wait) for wait in waits])

    def _follow(self, wait: Wait, stopped: threading.Event) -> None:
        cursor = 0
        while not stopped.is_set():
            seen = wait(cursor, WATCH_SECONDS)
            if seen != cursor:
                cursor = seen
                self.stir()
