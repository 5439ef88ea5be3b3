"""The one source of time, waiting and randomness: everything that waits is given a clock."""

from __future__ import annotations

import random
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

__all__ = ["SECOND", "Clock", "SystemClock", "Wake", "from_us", "to_us"]

SECOND = 1_000_000
"""Microseconds in a second: instants are whole microseconds since 1970, UTC."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_us(moment: datetime) -> int:
    """Turn an aware datetime into microseconds since the epoch."""
    return (moment - _EPOCH) // _MICROSECOND


def from_us(us: int) -> datetime:
    """Turn microseconds since the epoch into a datetime in UTC."""
    return _EPOCH + timedelta(microseconds=us)


class Wake(Protocol):
    """What a loop sleeps on."""

    def set(self) -> None:
        """Wake the sleeper, now or at its next sleep."""

    def clear(self) -> None:
        """Forget earlier wake-ups."""

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until woken or until `timeout` seconds have passed."""


class Clock(Protocol):
    """Time, waiting and randomness; the simulator and the tests put their own in its place."""

    def now(self) -> int:
        """Return the wall-clock instant."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""

    def random(self) -> float:
        """Return a number in [0, 1)."""

    def wake(self) -> Wake:
        """Make something to sleep on."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> int:
        """Return the wall-clock instant."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return random.random()

    def wake(self) -> Wake:
        """Make something to sleep on."""
        return threading.Event()
