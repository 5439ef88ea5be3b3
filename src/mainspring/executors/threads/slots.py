"""Slots: a thread executes one run at a time in its slot, where others can interrupt it.

A time-out or a cancellation raises an exception inside the thread. It may arrive at any moment, even when the run has
just ended, so both sides follow a small protocol. The interrupting thread first puts a `RunInterrupt` into the slot,
then checks that the run is still there, and only then raises. The slot's thread first takes the run out of the slot,
then looks for a `RunInterrupt`; if it finds one, it waits until that is settled and the exception has arrived. So the
exception hits the run it is meant for or nothing, and a run that nobody interrupts pays for two attribute writes. While
the run is inside a store, its thread raises the exception itself when it leaves: see `mainspring.interrupts`.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mainspring.core.references import ref_to_obj
from mainspring.core.run import Report, Result, Run
from mainspring.errors import RunTimeout
from mainspring.executors.current_run import CURRENT
from mainspring.executors.execution import (
    Item,
    OneTimeRight,
    StopReason,
    announce_stuck,
    failed,
    may_end_now,
    stopped,
    tell,
)
from mainspring.executors.forks import leave_if_forked
from mainspring.interrupts import InterruptRequest, shelter_of_this_thread

if TYPE_CHECKING:
    import asyncio

    from mainspring.executors.base import BaseExecutor

__all__ = ["Slot", "Slots", "ThreadCancelled"]

_RETURNED: Final = Result.RETURNED
_NEVER: Final = math.inf
_PLAIN_TYPES: Final = frozenset((type(None), bool, int, float, str, bytes, list, tuple, dict))
"""Types whose values are never coroutines: checking an abstract class takes a tenth of the time of a run."""
_SETTLE_POLL_SECONDS: Final = 0.01


class ThreadCancelled(BaseException):
    """Raised in the thread of a cancelled run; `except Exception` does not catch it."""


_KINDS: Final[dict[StopReason, type[BaseException]]] = {
    StopReason.TIMEOUT: RunTimeout,
    StopReason.CANCEL: ThreadCancelled,
}
_STRAYS: Final = (RunTimeout, ThreadCancelled)


class RunInterrupt(InterruptRequest):
    """A request to stop the run in a slot."""

    __slots__ = ("again", "hit", "item", "report", "started", "stop")

    def __init__(self, item: Item, stop: StopReason, started: int) -> None:
        super().__init__()
        self.item, self.stop, self.started = item, stop, started
        self.hit = False
        """Whether the run was still in the slot, and so is being stopped."""
        self.again: float | None = None
        """When to check again whether the run has ended; never, once it is given up."""
        self.report = OneTimeRight()
        """The right to report the run: the slot's thread and the thread that gives the run up may both try."""


class Slot:
    """A place for one run at a time, in the thread that made it."""

    __slots__ = (
        "deadline",
        "gone",
        "home",
        "interrupt",
        "item",
        "runner",
        "shelter",
        "started",
        "stuck",
        "task",
        "thread",
    )

    def __init__(self, gone: threading.Event) -> None:
        self.gone = gone
        """Set while nobody needs to wait for this slot, because its thread has left it or is stuck in it."""
        self.item: Item | None = None
        self.started = 0
        """When the run in the slot started."""
        self.interrupt: RunInterrupt | None = None
        self.deadline: tuple[float, Item] | None = None
        """When the run must end, or since when it is being stopped."""
        self.stuck = False
        self.task: asyncio.Task[Any] | None = None
        self.runner: asyncio.Runner | None = None
        self.thread = threading.current_thread()
        self.home = os.getpid()
        """The process that owns the slot: a run may fork another one."""
        self.shelter = shelter_of_this_thread()

    def stop(self, kind: type[BaseException]) -> None:
        """Stop the run in the slot: cancel its coroutine, or raise `kind` in its thread."""
        task = self.task
        if task is None:
            _raise_in(self.thread.ident, kind)
        else:
            with suppress(RuntimeError):  # the loop is closed, so the run is over
                task.get_loop().call_soon_threadsafe(task.cancel)

    def finish(self, coroutine: Coroutine[Any, Any, Any], context: Context) -> Any:
        """Run a coroutine to its end in this thread."""
        from mainspring.executors.cooperative.coroutines import finish  # asyncio takes 40 ms, and few need it here

        return finish(self, coroutine, context)

    def close(self) -> None:
        """Close the slot's event loop, if it has one."""
        runner, self.runner = self.runner, None
        if runner is not None:
            runner.close()


class Slots:
    """The slots of an executor. This class executes runs in them, watches their deadlines and counts the lost ones."""

    def __init__(self, executor: BaseExecutor, grace: float) -> None:
        self.now: Callable[[], int] = executor.now
        self.stuck = 0
        self._notify = executor.notify
        self._losses, self._tell_accepting = executor.losses, executor.tell_accepting
        self._logger: logging.Logger = executor._logger
        self._grace = grace
        self._board = executor.board
        self._slots: list[Slot] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._wake_at = _NEVER
        self._closing = False
        self._watchdog: threading.Thread | None = None

    def open(self, gone: threading.Event | None = None) -> Slot:
        """Add a slot for the current thread, which must do so before it takes a run."""
        slot = Slot(gone or threading.Event())
        slot.gone.clear()
        self._slots.append(slot)
        return slot

    def drop(self, slot: Slot) -> None:
        """Remove a slot that its thread no longer uses."""
        try:
            slot.close()
        finally:
            self._slots.remove(slot)
            slot.gone.set()
            if self._closing:
                self._wake.set()

    def execute(self, slot: Slot, item: Item) -> None:
        """Execute a run in its slot and report it; no exception of the run escapes."""
        # Keep this in one long function: it is called for every run, and each further call would add a tenth.
        run, report, _, may_start = item
        refusal = may_start(run)
        if refusal is not None:
            return tell(report, Report(run, refusal), self._logger)
        call, timeout, started = run.call, run.policy.timeout, self.now()
        value = error = message = None
        board = self._board
        if board is not None:
            board.enter(run.id, timeout)
        if timeout is not None:
            # Do this before the run can be interrupted: an exception in here would leave the watchdog's lock held.
            self._arm(slot, item, timeout)
        # The outer `try` is for an exception that arrives when the run has just ended.
        try:
            try:
                slot.started = started
                slot.item = item
                func = call.func
                CURRENT.set((run, report))
                context = copy_context()
                value = context.run(ref_to_obj(func) if isinstance(func, str) else func, *call.args, **call.kwargs)
                if type(value) not in _PLAIN_TYPES and isinstance(value, Coroutine):
                    value = slot.finish(value, context)
            except BaseException as exc:
                error = exc
            if os.getpid() != slot.home:
                leave_if_forked(slot.home, error)
            slot.item = None
            interrupt = slot.interrupt
            if interrupt is not None:
                interrupt = self._settle(slot, interrupt)
        except _STRAYS:
            slot.item = None
            interrupt = None if slot.interrupt is None else self._settle(slot, slot.interrupt)
        if timeout is not None:
            slot.deadline = None
        if board is not None:
            board.end(run.id)
        if interrupt is not None:
            message = self._after_interrupt(slot, interrupt, error, started)
        elif error is not None:
            message = failed(run, error, started, self.now())
        else:
            message = Report(run, _RETURNED, value, None, None, started, self.now())
        try:
            if message is not None:
                report(message)
        except BaseException:
            self._logger.exception("reporting run %s failed", run.id)
        finally:
            # The error's frames lead back to this one and would keep its objects alive until a garbage collection.
            value = error = message = item = None  # type: ignore[assignment]

    def executes_here(self) -> bool:
        """Return True if the caller is executed in one of the slots."""
        return threading.current_thread() in [slot.thread for slot in list(self._slots) if slot.item is not None]

    def has_lost(self, thread: threading.Thread) -> bool:
        """Return True if a thread is stuck in its slot."""
        return any(slot.stuck and slot.thread is thread for slot in list(self._slots))

    def withdraw(self, older_than: int | None) -> list[Run]:
        """Return nothing: every run in a slot has started."""
        return []

    def cancel(self, run_id: str) -> bool:
        """Stop the run of this id if it is in a slot."""
        for slot in list(self._slots):
            item = slot.item
            if item is not None and item[0].id == run_id:
                hit = self._interrupt(slot, item, StopReason.CANCEL)
                if hit:
                    self._watch_from(time.monotonic())
                return hit
        return False

    def close(self) -> None:
        """Let the watchdog end once no slot is left to watch."""
        self._closing = True
        self._wake.set()

    def join(self) -> None:
        """Wait until every slot is empty or stuck, and report the runs in the stuck ones."""
        here = threading.current_thread()
        for slot in list(self._slots):
            if slot.thread is not here:
                slot.gone.wait()
                self._give_up(slot)
        watchdog = self._watchdog
        if watchdog is not None and not any(slot.thread is here for slot in self._slots):
            watchdog.join()

    def _give_up(self, slot: Slot) -> None:
        interrupt = slot.interrupt
        if slot.stuck and interrupt is not None and interrupt.report.claim():
            message = stopped(interrupt.item[0], interrupt.stop, None, interrupt.started, self.now())
            tell(interrupt.item[1], message, self._logger)

    def _settle(self, slot: Slot, interrupt: RunInterrupt) -> RunInterrupt | None:
        """Wait for the interrupting thread and for its exception; return the interrupt if it hit the run."""
        while not interrupt.settled:
            time.sleep(0)
        # An exception raised in this thread arrives with the next call, which is this one. (Python could withdraw it,
        # but until 3.12 it would then check for it before every instruction, for ever.)
        time.sleep(0)
        slot.shelter.withdraw(interrupt)
        slot.interrupt = slot.deadline = None
        return interrupt if interrupt.hit else None

    def _after_interrupt(
        self, slot: Slot, interrupt: RunInterrupt, error: BaseException | None, started: int
    ) -> Report | None:
        with self._lock:
            was_stuck, slot.stuck = slot.stuck, False
            if was_stuck:
                slot.gone.clear()
                self.stuck -= 1
                self._losses.pop(interrupt.item[0].id, None)
        if was_stuck:
            self._tell_accepting()
        if not interrupt.report.claim():
            return None
        return stopped(interrupt.item[0], interrupt.stop, error, started, self.now())

    def _interrupt(self, slot: Slot, item: Item, stop: StopReason) -> bool:
        with self._lock:
            if slot.interrupt is not None:
                return slot.interrupt.item is item
            slot.interrupt = interrupt = RunInterrupt(item, stop, slot.started)
            slot.shelter.announce(interrupt)
            try:
                interrupt.hit = slot.item is item
                if interrupt.hit:
                    slot.deadline = (time.monotonic(), item)  # the watchdog checks whether it ends
                if interrupt.hit and slot.shelter.inside and slot.task is None:
                    interrupt.left = _KINDS[stop]
                elif interrupt.hit:
                    slot.stop(_KINDS[stop])
                else:
                    slot.shelter.withdraw(interrupt)
                    slot.interrupt = None
            finally:
                interrupt.settled = True
            return interrupt.hit

    # The watchdog sleeps until the first deadline. While it checks the slots, `_wake_at` is `never`, so any new
    # deadline wakes it. So it misses no deadline, and a deadline that is not the first does not wake it.

    def _arm(self, slot: Slot, item: Item, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        slot.deadline = (deadline, item)
        self._watch_from(deadline)

    def _watch_from(self, deadline: float) -> None:
        """Make the watchdog look at a slot that has a deadline now."""
        if self._watchdog is None:
            with self._lock:
                if self._watchdog is None:
                    self._watchdog = threading.Thread(target=self._watch, name="mainspring-watchdog", daemon=True)
                    self._watchdog.start()
        if deadline < self._wake_at:
            self._wake.set()

    def _watch(self) -> None:
        while True:
            self._wake.clear()
            self._wake_at = _NEVER
            first = min(map(self._look_at, list(self._slots)), default=_NEVER)
            if self._closing and all(slot.stuck for slot in list(self._slots)):
                return
            self._wake_at = first
            self._wake.wait(min(max(0.0, first - time.monotonic()), threading.TIMEOUT_MAX))

    def _look_at(self, slot: Slot) -> float:
        """Do what is due for a slot; return when to look again."""
        armed, now = slot.deadline, time.monotonic()
        if armed is None:
            return _NEVER
        deadline, item = armed
        if slot.item is not item:  # it is about to start, or has just ended
            return max(deadline, now + _SETTLE_POLL_SECONDS)
        if deadline > now:
            return deadline
        self._interrupt(slot, item, StopReason.TIMEOUT)
        interrupt = slot.interrupt
        if interrupt is None or interrupt.item is not item:
            return _NEVER
        if interrupt.again is None or (interrupt.again <= now and interrupt.left is not None):
            # The thread raises the exception when it leaves the store, which does not wait for its server for long.
            interrupt.again = time.monotonic() + self._grace
        elif interrupt.again <= now:
            interrupt.again = _NEVER
            self._lose(slot, interrupt)
        return interrupt.again

    def _lose(self, slot: Slot, interrupt: RunInterrupt) -> None:
        """Count a slot as lost, announce that, and report its run if nothing will start the run again."""
        with self._lock:
            if slot.item is not interrupt.item:
                return
            slot.stuck = True
            self.stuck += 1
            self._losses[interrupt.item[0].id] = interrupt.item[0]
            slot.gone.set()
        run, report = interrupt.item[0], interrupt.item[1]
        stack = _stack_of(slot.thread)
        announce_stuck(run, interrupt.stop, f"thread {slot.thread.name}", stack, self._notify, self._logger)
        self._tell_accepting()
        if may_end_now(run, interrupt.stop) and interrupt.report.claim():
            message = stopped(run, interrupt.stop, None, interrupt.started, self.now())
            if message.error is not None:
                message.error = msgspec.structs.replace(message.error, traceback=stack)
            tell(report, message, self._logger)


def _stack_of(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame is not None else ""


def _raise_in(thread_id: int | None, kind: type[BaseException]) -> None:
    """Raise `kind` in a thread when it next executes Python code."""
    import ctypes  # imported only once a run has to be stopped

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id or 0), ctypes.py_object(kind))
