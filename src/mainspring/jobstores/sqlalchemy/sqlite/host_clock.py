"""The clock of a SQLite store: the host's clock, which all its processes share."""

from __future__ import annotations

import threading
import time
from typing import Final

from mainspring.core.instants import SECOND
from mainspring.jobstores.sqlalchemy.database import log

__all__ = ["HostClock"]

SMALL_STEP_US: Final = 2 * SECOND
"""Smooth over a step back of the wall clock of at most this many microseconds."""


class HostClock:
    """The host's wall clock; all processes of the host share it, so they agree on which leases are over.

    After a small step back, this clock runs at half speed until the wall clock has caught up. A bigger step means that
    the wall clock was ahead, and this clock follows at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._highest = 0
        self._seen_at = 0

    def now(self) -> int:
        """Return the time in microseconds."""
        with self._lock:
            wall, steady = time.time_ns() // 1000, time.monotonic_ns() // 1000
            behind = self._highest - wall
            if 0 < behind <= SMALL_STEP_US:
                wall = self._highest + max(0, steady - self._seen_at) // 2
            elif behind > SMALL_STEP_US:
                log.warning("the clock of this machine was set back by %.0f s, and so is the store's", behind / SECOND)
            self._highest, self._seen_at = wall, steady
            return wall
