"""Wait for several stores at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from mainspring.jobstores.base import JobStore
from mainspring.jobstores.split.changes import ChangeSignal

__all__ = ["StoreWatch"]

WATCH_SECONDS: Final = 5.0

Wait = Callable[[int, float], int]


class StoreWatch(ChangeSignal):
    """One cursor for the changes of several stores; a thread per store listens from the first `wait` on."""

    def __init__(self, waits: Sequence[Wait], runs: JobStore | None = None) -> None:
        follows = [partial(self._follow, wait, False) for wait in waits]
        super().__init__(follows if runs is None else [partial(self._follow, runs.wait, runs.tells_topics), *follows])

    def _follow(self, wait: Wait, tells_topics: bool, stopped: threading.Event) -> None:
        cursor = wait(0, 0)
        self.stir()  # nobody knows what changed before
        while not stopped.is_set():
            seen = wait(cursor, WATCH_SECONDS)
            if seen != cursor:
                self.stir(seen - cursor if tells_topics and seen > cursor else 1)
                cursor = seen
