"""The only source of time, waiting and randomness. All code that waits takes a clock."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from mainspring.core.instants import SECOND

__all__ = ["Bell", "Clock", "StoreTime", "SystemClock", "Wake"]


class Wake(Protocol):
    """An alarm that a loop sleeps on."""

    def set(self) -> None:
        """Wake the sleeper, now or at its next sleep."""

    def clear(self) -> None:
        """Forget earlier wake-ups."""

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until woken or until `timeout` seconds have passed."""


class Clock(Protocol):
    """A source of time, waiting and randomness; the simulator and the tests replace it."""

    def now(self) -> int:
        """Return the wall-clock instant."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""

    def random(self) -> float:
        """Return a number in [0, 1)."""

    def wake(self) -> Wake:
        """Make an alarm to sleep on."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> int:
        """Return the wall-clock instant."""
        return time.time_ns() // 1000

    monotonic = staticmethod(time.monotonic)

    def random(self) -> float:
        """Return a number in [0, 1)."""
        import random  # takes a millisecond, and triggers, which import this module, do not need it

        return random.random()

    def wake(self) -> Wake:
        """Make an alarm to sleep on."""
        return Bell()


class Bell:
    """The alarm of one thread: a lock that is free while the bell rings. An Event takes four times as long to wake."""

    def __init__(self) -> None:
        self._silent = threading.Lock()
        self._silent.acquire()

    def set(self) -> None:
        """Wake the sleeper, now or at its next sleep."""
        with suppress(RuntimeError):  # it is ringing already
            self._silent.release()

    def clear(self) -> None:
        """Forget earlier wake-ups."""
        self._silent.acquire(blocking=False)

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until woken or until `timeout` seconds have passed; a wake-up counts for one sleep."""
        return self._silent.acquire(timeout=-1 if timeout is None else timeout)


SLOW_ANSWER_US: Final = 10_000
"""Ask the store for its time again if the answer took longer than this."""


class StoreTime:
    """An estimate of a store's time: its last observed offset to the monotonic clock.

    It calls `ask` for the store's time only if the offset is unknown or older than `trusted` seconds.
    """

    def __init__(self, ask: Callable[[], int], clock: Clock, trusted: float = math.inf) -> None:
        self._ask, self._clock, self._trusted = ask, clock, trusted
        self._until = -math.inf
        self.offset = 0
        """The store's time minus the monotonic clock, in microseconds."""
        self.slack = 0
        """The most by which the store's time may be ahead of `now`: the time that the store took to answer."""

    def observe(self, now: int, asked: float) -> None:
        """Record the store's time; the caller asked for it at `asked`, by the monotonic clock."""
        # Read the clock after the answer, however long that took: an estimate behind the store's time does little harm,
        # one ahead of it does.
        monotonic = self._clock.monotonic()
        offset, slack = now - int(monotonic * SECOND), int((monotonic - asked) * SECOND)
        # The true offset is between this one and this one plus the time of the answer. An earlier, faster answer in
        # that range is more exact.
        fits = self._until > -math.inf and self.slack <= slack and offset <= self.offset <= offset + slack
        if not fits:
            self.slack, self.offset = slack, offset
        self._until = monotonic + self._trusted  # last, so that no other thread uses the offset too early

    def now(self) -> int:
        """Return the store's time as last estimated; ask the store first if the estimate is too old."""
        monotonic = self._clock.monotonic()
        if monotonic >= self._until:
            self.observe(self._ask(), monotonic)
            if self.slack > SLOW_ANSWER_US:
                # The first call may have had to open the store. Now that it is open, a second answer is more exact.
                monotonic = self._clock.monotonic()
                self.observe(self._ask(), monotonic)
            monotonic = self._clock.monotonic()
        return self.offset + int(monotonic * 1e6)
