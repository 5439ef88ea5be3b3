"""Run ticks until stopped. All threads, wake-ups, back-off after errors and stopping of a node are here."""

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
    """Calls each tick when its delay is over or somebody wants it called. Only one thread at a time calls the ticks.

    `wake` leaves the call to the loop's own thread. `call_now` does not wait until that thread has woken up: the
    caller's thread itself calls all ticks that are wanted or due. After a tick fails, `failed` returns the delay until
    its next try.
    """

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
        self._numbers = {tick: number for number, tick in enumerate(ticks)}
        self._clock = clock
        self._failed = failed
        self._finished = finished
        self._around = around
        """The context in which the thread runs."""
        self._bell = clock.wake()
        """Ends the sleep of the loop's own thread."""
        self._wanted = [True] * len(self._ticks)
        """Whether to call each tick before its delay is over."""
        self._due = [0.0] * len(self._ticks)
        """When the delay of each tick is over, by the monotonic clock."""
        self._stepping = threading.Lock()
        self._stepper: int | None = None
        """The id of the thread that calls ticks now; it holds `_stepping`."""
        self._sleeps_until = 0.0
        self._thread: threading.Thread | None = None

    def wake(self, tick: Tick | None = None) -> None:
        """Call one tick, or all, as soon as possible; any thread may call this."""
        if tick is None:
            self._wanted[:] = [True] * len(self._ticks)
        else:
            self._wanted[self._numbers[tick]] = True
        if self._stepper != threading.get_ident():  # otherwise a tick wants another one called: `step` sees that
            self._bell.set()

    def call_now(self, *ticks: Tick) -> None:
        """Call these ticks, and all others that are due, on this thread; leave them to the loop if a step is going on.

        Afterwards, wake the loop's thread if it would sleep past the next due tick.
        """
        for tick in ticks:
            self._wanted[self._numbers[tick]] = True
        if not self._stepping.acquire(blocking=False):
            self._bell.set()
            return
        try:
            if not self._finished():
                self.step()
        finally:
            self._stepping.release()
        if True in self._wanted or min(self._due) < self._sleeps_until:
            self._bell.set()

    def step(self) -> float:
        """Call the ticks that are wanted or due; return the seconds until the next one is due."""
        wanted, due, monotonic = self._wanted, self._due, self._clock.monotonic
        now = monotonic()
        self._stepper = threading.get_ident()
        try:
            for index, tick in enumerate(self._ticks):
                if not wanted[index] and now < due[index]:
                    continue
                # Clear the flag before the call: if somebody wants the tick during the call, it is called again.
                wanted[index] = False
                try:
                    delay = tick()
                except BaseException as error:  # without this loop, a living node would do nothing for its store
                    if _is_death(error):
                        raise
                    delay = self._delay_after(error)
                now = monotonic()
                due[index] = now + delay
        finally:
            self._stepper = None
        return 0.0 if True in wanted else max(0.0, min(due) - now)

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
            self._bell.clear()
            with self._stepping:
                delay = self.step()
                self._sleeps_until = min(self._due)
            if os.getpid() != home:  # a user's trigger or back-off function may have forked
                leave_if_forked(home)
            if delay > 0 and not self._finished():
                self._bell.wait(delay)

    def start(self) -> None:
        """Start a thread that runs the loop."""
        self._thread = threading.Thread(target=self._run_wrapped, name=self._name, daemon=True)
        self._thread.start()

    def _run_wrapped(self) -> None:
        with self._around():
            self.run()

    def join(self) -> None:
        """Wait until the loop has ended; return at once if one of its ticks calls this."""
        here = threading.get_ident()
        # An interrupt may have kept the thread from starting.
        if self._thread is not None and here not in (self._thread.ident, self._stepper):
            if self._thread.is_alive():
                self._thread.join()
            with self._stepping:  # another thread may be calling the ticks
                pass


def _is_death(error: BaseException) -> bool:
    """Return True if the loop runs in a greenlet that is being ended."""
    return type(error).__name__ == "GreenletExit"  # compare names: greenlet may not be installed
