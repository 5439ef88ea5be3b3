"""A clock that only a test moves."""

from __future__ import annotations

import random
import threading
from weakref import WeakSet

from mainspring.clock import Wake
from mainspring.core.instants import SECOND

__all__ = ["VirtualClock"]


class VirtualClock:
    """Time that only a test moves, and random numbers that repeat in every run."""

    def __init__(self, start: int = 1_767_225_600 * SECOND, seed: int = 0) -> None:
        self._now = start
        self._random = random.Random(seed)
        self._sleepers: WeakSet[threading.Event] = WeakSet()

    def now(self) -> int:
        """Return the wall-clock instant, in microseconds."""
        return self._now

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return self._now / SECOND

    def random(self) -> float:
        """Return the next number of a fixed sequence in [0, 1)."""
        return self._random.random()

    def wake(self) -> Wake:
        """Return an event whose sleeps follow this clock."""
        sleeper = threading.Event()
        self._sleepers.add(sleeper)
        return sleeper

    def advance(self, seconds: float) -> None:
        """Move time forward, and wake the sleepers."""
        self._now += round(seconds * SECOND)
        for sleeper in list(self._sleepers):
            sleeper.set()
