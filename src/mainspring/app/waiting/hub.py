"""Wait for the ends of runs: one listener per process and store, however many waiters.

A thread listens for ends (`store.wait` with the topic `ENDS`) while somebody waits. When it is woken, it looks for all
waiters in one call, and wakes those whose runs have ended. A message is only a hint: without one, it looks about once a
second. The thread may be missing, for example after a fork, or stuck in the store: each waiter then looks by itself.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from mainspring.app.waiting.base import BaseWaiter, RunQuestion
from mainspring.app.waiting.waiter import warn
from mainspring.clock import SystemClock
from mainspring.errors import StoreUnavailable
from mainspring.interrupts import sheltered
from mainspring.jobstores.base import ENDS, JobStore
from mainspring.jobstores.finding import FIND_PAGE_RUNS

__all__ = ["EndHub", "OffLoop", "dismiss", "hub_of", "on_a_thread", "wait", "wait_async"]

OffLoop = Callable[[Callable[[], Any]], Awaitable[Any]]
"""The function by which async code makes a blocking call."""
Ask = Callable[[Sequence[str]], Sequence[Any]]
"""A verb of a store that answers questions about runs."""

FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 1.0
"""Look this often without a message. After a waiter has come, begin with shorter pauses: then a message is most likely
to be lost."""
UNREPORTED_PAUSE_SECONDS: Final = 0.1
"""Look at least this often after finding an end without a message: none may come, for example behind a pooler."""
LONGEST_GAP_SECONDS: Final = 0.1
"""Leave up to this much time between looks while the store reports only ends of runs that nobody here waits for."""
FIRST_GAP_SECONDS: Final = 0.002
LINGER_SECONDS: Final = 5.0
"""Keep listening for this long after the last waiter has left, so that the next waiter gets messages at once."""
STALE_SECONDS: Final = 3.0
"""If the hub has not looked for this long, a waiter looks by itself."""
SLICE_SECONDS: Final = 0.5
"""A waiting thread sleeps for at most this long: an interrupt reaches it when it wakes."""
LOOKS_BEFORE_JOINING: Final = 3

log = logging.getLogger("mainspring.app")


class Seat:
    """A waiter at the hub, the function that wakes it, and its outcome."""

    __slots__ = ("ended", "error", "is_called", "ring", "waiter")

    def __init__(self, waiter: BaseWaiter, ring: Callable[[], object]) -> None:
        self.waiter, self.ring = waiter, ring
        self.ended = False
        self.error: Exception | None = None
        self.is_called = False
        """Whether the waiter has been called: its runs have ended, or it has to look by itself."""

    def call(self, *, ended: bool = False, error: Exception | None = None) -> None:
        """Wake the waiter for good."""
        self.ended, self.error, self.is_called = ended, error, True
        with suppress(RuntimeError):  # its event loop has been closed
            self.ring()

    def outcome(self) -> bool:
        """Return True if the runs have ended; raise the error of the look, if it failed."""
        if self.error is not None:
            raise self.error
        return self.ended


class EndHub:
    """The waiters of one store in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._joined = threading.Condition(self._lock)
        self._seats: set[Seat] = set()
        self._looking = threading.Lock()
        self._thread: threading.Thread | None = None
        self._dismissed = False
        self._pause, self._longest_pause = FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS
        self._gap = 0.0
        self._looked_at = 0.0
        self.looks = 0
        """The number of looks that have begun."""

    # -- called by waiters ---------------------------------------------------------------------------------------

    @sheltered
    def join(self, store: JobStore, seat: Seat, looks: int | None) -> bool:
        """Take a seat; return False if the number of looks is no longer `looks`: an end may have been missed."""
        with self._lock:
            if looks is not None and looks != self.looks:
                return False
            if not self._seats:
                self._looked_at, self._pause = time.monotonic(), FIRST_PAUSE_SECONDS
            self._seats.add(seat)
            self._gap = 0.0
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._serve, args=(store,), name="mainspring-ends", daemon=True)
                with suppress(RuntimeError):  # no thread can be started: waiters look by themselves
                    self._thread.start()
            self._joined.notify()
            return True

    @sheltered
    def leave(self, seat: Seat) -> None:
        """Leave the hub."""
        with self._lock:
            self._seats.discard(seat)

    def settle_down(self) -> None:
        """Wait briefly until no look is under way that may include a waiter that has left."""
        if self._looking.acquire(timeout=1.0):
            self._looking.release()

    def dismiss(self) -> None:
        """Let the thread end as soon as nobody waits."""
        with self._lock:
            self._dismissed = self._thread is not None
            self._joined.notify()

    def wakes_at(self, seat: Seat) -> float:
        """Return when a waiter has to look by itself, by the monotonic clock."""
        return min(seat.waiter.looks_at, self._looked_at + STALE_SECONDS)

    # -- the thread ----------------------------------------------------------------------------------------------

    def _serve(self, store: JobStore) -> None:
        with store.on_thread():
            self._listen(store)

    def _listen(self, store: JobStore) -> None:
        cursor = 0
        while self._has_waiters():
            began, pause = time.monotonic(), self._pause
            try:
                heard = store.wait(cursor, pause, ENDS)
            except Exception as error:  # go on: the look reports an outage, and finds ended runs
                log.debug("cannot listen for ends of runs: %s", error)
                heard = cursor
            if heard == cursor:
                self._pause = min(self._longest_pause, pause * 4)
                time.sleep(max(0.0, began + pause - time.monotonic()))  # in case the store did not wait
            elif self._gap:
                time.sleep(self._gap)
            self._look(store, heard != cursor, first=not cursor)
            cursor = heard
        with suppress(Exception):
            store.wait(cursor, 0, ENDS)  # listen no longer

    def _has_waiters(self) -> bool:
        """Wait until there is a waiter; return False, to end the thread, if none comes for a while."""
        with self._lock:
            self._joined.wait_for(lambda: self._seats or self._dismissed, LINGER_SECONDS)
            if self._seats:
                return True
            self._thread, self._dismissed = None, False
            return False

    def _look(self, store: JobStore, reported: bool, *, first: bool) -> None:
        """Look for all waiters, and wake those whose runs have ended.

        `reported` says that the store has sent a message; on the `first` look, that message reports no end.
        """
        with self._looking:
            with self._lock:
                self.looks += 1
                seats = list(self._seats)
            began, found = time.monotonic(), False
            try:
                found = ask_together(store, seats, reported=reported and not first and not self._gap)
            except StoreUnavailable as error:
                if not all(seat.waiter.away for seat in seats):
                    log.warning("the store does not answer; the wait goes on: %s", error)
                for seat in seats:
                    seat.waiter.away = True
            except Exception:  # let each waiter look alone: one of them fails, and the others go on
                for seat in seats:
                    seat.call()
            self._looked_at = now = time.monotonic()
            unwarned = [seat.waiter for seat in seats if not seat.is_called and seat.waiter.warns_at <= now]
            if unwarned:
                with suppress(Exception):  # a warning is optional
                    warn(store, unwarned)
            with self._lock:
                self._seats -= {seat for seat in seats if seat.is_called}
            gap = min(LONGEST_GAP_SECONDS, max(FIRST_GAP_SECONDS, 2 * self._gap, now - began))
            self._gap = gap if reported and not found else 0.0
            if found:
                self._longest_pause = LONGEST_PAUSE_SECONDS if reported else UNREPORTED_PAUSE_SECONDS


def ask_together(store: JobStore, seats: Sequence[Seat], *, reported: bool = False) -> bool:
    """Let all waiters look at once: each of their rounds is one question to the store. Return True if a run ended.

    If the store has reported an end and there is only one awaited run, that run has probably ended: read its record at
    once.
    """
    asking: dict[Seat, Generator[RunQuestion, Sequence[Any], bool]] = {}
    asked: dict[Seat, RunQuestion] = {}
    found = False

    def go_on(seat: Seat, answers: Sequence[Any] | None) -> None:
        nonlocal found
        try:
            asked[seat] = asking[seat].send(answers)  # type: ignore[arg-type]
            found |= asked[seat].records
        except StopIteration as stop:
            if stop.value:
                found = True
                seat.call(ended=True)
        except StoreUnavailable:
            raise
        except Exception as error:
            seat.call(error=error)

    for seat in seats:
        asking[seat] = seat.waiter.questions(store)
        go_on(seat, None)
    # A record includes the status, so one read answers both questions.
    at_once = reported and sum(len(question.run_ids) for question in asked.values()) == 1
    answers: dict[str, Any] = {}
    while asked:
        questions, asked = asked, {}
        for records in (False, True):
            some = {seat: question for seat, question in questions.items() if question.records is records}
            if some and not (at_once and answers):
                ask: Ask = store.get_runs if records or at_once else store.standings
                answers = _answers(ask, [run_id for question in some.values() for run_id in question.run_ids])
            for seat, question in some.items():
                go_on(seat, [answers[run_id] for run_id in question.run_ids])
    return found


def _answers(ask: Ask, run_ids: Sequence[str]) -> dict[str, Any]:
    """Ask about each run once, a page at a time."""
    wanted = list(dict.fromkeys(run_ids))
    found: dict[str, Any] = {}
    for start in range(0, len(wanted), FIND_PAGE_RUNS):
        page = wanted[start : start + FIND_PAGE_RUNS]
        found.update(zip(page, ask(page), strict=True))
    return found


# -- the hubs of this process --------------------------------------------------------------------------------------

_hubs: WeakKeyDictionary[JobStore, EndHub] = WeakKeyDictionary()
_hubs_lock = threading.Lock()


def hub_of(store: JobStore) -> EndHub:
    """Return the hub of a store in this process."""
    with _hubs_lock:
        found = _hubs.get(store)
        if found is None:
            found = _hubs[store] = EndHub()
        return found


def dismiss(store: JobStore) -> None:
    """Stop listening for a store that is about to be closed, once nobody waits any more."""
    with _hubs_lock:
        found = _hubs.get(store)
    if found is not None:
        found.dismiss()


def _begin_anew() -> None:
    """Forget the hubs of the parent: their threads are not in a forked child, and their locks may be held."""
    global _hubs, _hubs_lock
    _hubs, _hubs_lock = WeakKeyDictionary(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


# -- waiting -------------------------------------------------------------------------------------------------------


def _look_and_join(store: JobStore, seat: Seat) -> EndHub | None:
    """Look for one waiter; let it join the hub and return the hub, or return None if its runs have ended."""
    hub = hub_of(store)
    for number in range(LOOKS_BEFORE_JOINING):
        looks = hub.looks
        if seat.waiter.look(store):
            return None
        # A hub that looks all the time will look for this waiter soon.
        if hub.join(store, seat, None if number == LOOKS_BEFORE_JOINING - 1 else looks):
            break
    return hub


def wait(store: Callable[[], JobStore], waiter: BaseWaiter) -> None:
    """Wait until the wait of a waiter is over; raise TimeoutError, RunNotFound or StoreUnavailable."""
    while True:
        bell = SystemClock().wake()
        seat = Seat(waiter, bell.set)
        hub = _look_and_join(store(), seat)
        if hub is None:
            return
        try:
            while not seat.is_called and (left := hub.wakes_at(seat) - time.monotonic()) > 0:
                bell.wait(min(left, SLICE_SECONDS))
        finally:
            hub.leave(seat)
        if not seat.is_called:
            hub.settle_down()
        if seat.outcome():
            return


async def on_a_thread(work: Callable[[], Any]) -> Any:
    """Make a blocking call on a thread of asyncio's pool."""
    import asyncio  # importing it takes 40 ms, and not every app needs it

    return await asyncio.to_thread(work)


async def wait_async(store: Callable[[], JobStore], waiter: BaseWaiter, off_loop: OffLoop = on_a_thread) -> None:
    """Wait as `wait` does, without blocking the event loop: `off_loop` makes the short looks, which block."""
    import asyncio  # importing it takes 40 ms, and not every app needs it

    loop = asyncio.get_running_loop()
    while True:
        rung = asyncio.Event()
        seat = Seat(waiter, partial(loop.call_soon_threadsafe, rung.set))
        hub: EndHub | None = await off_loop(partial(_look_and_join, store(), seat))
        if hub is None:
            return
        try:
            while not seat.is_called and (left := hub.wakes_at(seat) - time.monotonic()) > 0:
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(rung.wait(), left)
        finally:
            hub.leave(seat)
        if not seat.is_called:
            await off_loop(hub.settle_down)
        if seat.outcome():
            return
