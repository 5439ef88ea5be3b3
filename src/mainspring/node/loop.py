"""Run ticks until stopped. Threads, wake-ups, back-off after errors and stopping are all here."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from mainspring.clock import Clock
from mainspring.executors.forks import leave_if_forked

__all__ = ["LONGEST_SLEEP_SECONDS", "Loop", "Tick"]

log = logging.getLogger("mainspring.loop")

LONGEST_SLEEP_SECONDS: Final = 5.0
"""Sleep at most this long: if a wake-up is lost, the loop looks again within this many seconds."""

Tick = Callable[[], float]
"""A function that does what is due and returns the seconds until its next call."""


class Loop:
    """Runs ticks on one thread. After a tick fails, `failed` returns the delay until its next try."""

    def __init__(
        self,
        name: str,
        ticks: Sequence[Tick],
        clock: Clock,
        failed: Callable[[BaseException], float],
        finished: Callable[[], bool],
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._name = name
        self._ticks = list(ticks)
        self._clock = clock
        self._failed = failed
        self._finished = finished
        self._around = around
        """Wraps the life of the thread."""
        self._wake = clock.wake()
        self._woken = [True] * len(self._ticks)
        self._due = [0.0] * len(self._ticks)
        self._thread: threading.Thread | None = None

    def wake(self, tick: Tick | None = None) -> None:
        """Call one tick, or all, as soon as possible; any thread may ask."""
        for index, known in enumerate(self._ticks):
            if tick is None or known == tick:
                self._woken[index] = True
        self._wake.set()

    def step(self) -> float:
        """Call the ticks that are due; return the seconds until the next one is."""
        for index, tick in enumerate(self._ticks):
            if not self._woken[index] and self._clock.monotonic() < self._due[index]:
                continue
            # Cleared before the tick, so that a wake-up during the tick calls it again.
            self._woken[index] = False
            try:
                delay = tick()
            except BaseException as error:  # a loop that ends while its node is alive leaves everybody waiting
                if _is_death(error):
                    raise
                delay = self._delay_after(error)
            self._due[index] = self._clock.monotonic() + delay
        if any(self._woken):
            return 0.0
        return max(0.0, min(self._due) - self._clock.monotonic())

    def _delay_after(self, error: BaseException) -> float:
        try:
            return self._failed(error)
        except Exception:
            log.exception("the error handler of %s failed", self._name)
            return LONGEST_SLEEP_SECONDS

    def run(self) -> None:
        """Step until there is nothing left to do."""
        home = os.getpid()
        while not self._finished():
            self._wake.clear()
            delay = self.step()
            leave_if_forked(home)  # a trigger or a back-off function of the user's may have forked
            if delay > 0 and not self._finished():
                self._wake.wait(delay)

    def start(self) -> None:
        """Run on a thread of its own."""
        self._thread = threading.Thread(target=self._run_wrapped, name=self._name, daemon=True)
        self._thread.start()

    def _run_wrapped(self) -> None:
        with self._around():
            self.run()

    def join(self) -> None:
        """Wait until the loop has ended."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()


def _is_death(error: BaseException) -> bool:
    """Return True if the loop runs in a greenlet that is being ended."""
    return type(error).__name__ == "GreenletExit"  # of a package that need not be installed
