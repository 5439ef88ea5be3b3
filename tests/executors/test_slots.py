"""The protocol between a run and whoever interrupts it, at every step of it."""

import ctypes
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest

from mainspring.core.run import Report, Result
from mainspring.errors import RunTimeout
from mainspring.executors.base import BaseExecutor
from mainspring.executors.current_run import CURRENT
from mainspring.executors.execution import Item, StopReason, may_always_start
from mainspring.executors.threads import slots as module
from mainspring.executors.threads.slots import RunInterrupt, Slot, Slots, ThreadCancelled
from tests.executors import tasks
from tests.executors.helpers import Reports, make_run, timeout, wait_until


@pytest.fixture
def slots() -> Iterator[Slots]:
    executor = BaseExecutor()
    executor.start(None, "slots")
    slots = Slots(executor, 1e6)
    before = CURRENT.get()
    yield slots
    CURRENT.set(before)  # threads that execute runs do nothing else; this one does
    slots.close()
    slots.join()


class QuietSlot(Slot):
    """Notes what would be raised in its thread."""

    __slots__ = ("kind",)

    def __init__(self, gone: threading.Event) -> None:
        super().__init__(gone)
        self.kind: type[BaseException] | None = None

    def stop(self, kind: type[BaseException]) -> None:
        self.kind = kind


def _ask_for_opcodes(frame: FrameType, event: str, arg: Any) -> Any:
    frame.f_trace_opcodes = True
    return _ask_for_opcodes


def trace_opcodes() -> None:
    """Python 3.12 traces instructions only if some frame had asked for it before `settrace` was called."""
    sys.settrace(_ask_for_opcodes)
    (lambda: None)()
    sys.settrace(None)


trace_opcodes()


class InterruptAtStep:
    """A trace function that interrupts the run in a slot before the n-th instruction of the code under test."""

    files = frozenset([module.__file__])

    def __init__(self, slots: Slots, slot: QuietSlot, item: Item, stop: StopReason, step: int) -> None:
        self.slots, self.slot, self.item, self.stop = slots, slot, item, stop
        self.left = step
        self.done = self.hit = False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename not in self.files:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and not self.done:
            self.left -= 1
            if self.left == 0:
                self.done = True
                self.hit = self.slots._interrupt(self.slot, self.item, self.stop)
                if self.hit and self.slot.kind is not None:
                    here, kind = ctypes.c_ulong(threading.get_ident()), ctypes.py_object(self.slot.kind)
                    send = partial(ctypes.pythonapi.PyThreadState_SetAsyncExc, here, kind)
                    sys.settrace(None)
                    # A subscription, unlike a call, does not look for exceptions from outside: it arrives in the
                    # code that is traced, and not in this function.
                    defaultdict[str, int](send)["now"]
        return self


def _has(things: list[Any], count: int) -> bool:
    return len(things) == count


def fails() -> None:
    raise KeyError("its own error")


@pytest.mark.parametrize("func", [tasks.nothing, fails])
@pytest.mark.parametrize("stop", list(StopReason))
def test_an_interrupt_at_any_step_hits_its_run_or_nothing(slots: Slots, func: Any, stop: StopReason) -> None:
    slot = QuietSlot(threading.Event())
    slots._slots.append(slot)
    hits = misses = step = 0
    while True:
        step += 1
        reports: list[Report] = []
        item: Item = (make_run(func), reports.append, 0, may_always_start)
        interrupter = InterruptAtStep(slots, slot, item, stop, step)
        sys.settrace(interrupter)
        try:
            slots.execute(slot, item)
        finally:
            sys.settrace(None)
        assert len(reports) == 1, f"step {step}"
        (report,) = reports
        if interrupter.hit:
            hits += 1
            assert (
                report.result is Result.CANCELLED
                if stop is StopReason.CANCEL
                else isinstance(report.exception, RunTimeout)
            )
        else:
            misses += 1
            assert report.result is Result.RETURNED if func is tasks.nothing else isinstance(report.exception, KeyError)
        after: list[Report] = []
        slots.execute(slot, (make_run(tasks.add, 1), after.append, 0, may_always_start))
        assert [one.value for one in after] == [1], f"step {step}"
        if not interrupter.done:
            break
    assert hits > 20
    assert misses > 20
    slots.drop(slot)


def test_the_end_of_a_run_waits_for_whoever_is_about_to_raise(slots: Slots, monkeypatch: pytest.MonkeyPatch) -> None:
    slot = slots.open()
    reports: list[Report] = []
    waited: list[float] = []

    def leave_an_unsettled_interrupt() -> None:
        slot.interrupt = RunInterrupt(item, StopReason.CANCEL, 1)
        slot.interrupt.hit = True

    def settle(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            assert slot.interrupt is not None
            slot.interrupt.settled = True
            module._raise_in(threading.get_ident(), ThreadCancelled)

    item: Item = (make_run(leave_an_unsettled_interrupt), reports.append, 0, may_always_start)
    monkeypatch.setattr("mainspring.executors.threads.slots.time.sleep", settle)
    slots.execute(slot, item)
    assert len(waited) >= 3
    assert [report.result for report in reports] == [Result.CANCELLED]
    slots.drop(slot)


def test_a_deadline_set_while_the_watchdog_looks_around_is_seen() -> None:
    class Looking(Slots):
        """Lets a run begin in the first slot right after the watchdog has looked at it."""

        passes = 0

        def _look_at(self, slot: Slot) -> float:
            again = super()._look_at(slot)
            if slot is second:
                self.passes += 1
                if self.passes == 2:
                    first.item = late_one
                    self._arm(first, late_one, 0.05)
            return again

    executor = BaseExecutor()
    executor.start(None, "slots")
    slots = Looking(executor, 1e6)
    reports = Reports()
    late_one: Item = (make_run(tasks.nothing, policy=timeout(0.05)), reports, 0, may_always_start)
    early_one: Item = (make_run(tasks.nothing, policy=timeout(0.02)), reports, 0, may_always_start)
    made: list[Slot] = []
    stopped: list[Slot] = []
    idle = threading.Event()

    class Sitting(Slot):
        def stop(self, kind: type[BaseException]) -> None:
            stopped.append(self)

    def sit() -> None:
        slot = Sitting(threading.Event())
        slots._slots.append(slot)
        made.append(slot)
        idle.wait(60)

    threads = [threading.Thread(target=sit) for _ in range(2)]
    for count, thread in enumerate(threads, 1):
        thread.start()
        wait_until(partial(_has, made, count))
    first, second = made
    second.item = early_one
    slots._arm(second, early_one, 0.02)
    wait_until(lambda: stopped == [second, first])
    idle.set()
    for slot in made:
        slot.item = None
        slots.drop(slot)
    slots.close()
    slots.join()
