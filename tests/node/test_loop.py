"""A loop, and other threads that call its ticks: none is lost, and no two run at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from mainspring.clock import SystemClock
from mainspring.node.loop import Loop, Tick

LONG = 3600.0
TIMEOUT = 60.0


class Ticking:
    """A tick that notes the threads it is called on."""

    def __init__(self, act: Callable[[], float] = lambda: LONG) -> None:
        self.threads: list[threading.Thread] = []
        self.called = threading.Semaphore(0)
        self._act = act

    def __call__(self) -> float:
        self.threads.append(threading.current_thread())
        try:
            return self._act()
        finally:
            self.called.release()

    def wait(self) -> None:
        assert self.called.acquire(timeout=TIMEOUT)


@contextmanager
def running(*ticks: Tick) -> Iterator[Loop]:
    """Run a loop; it has called each tick once."""
    over = threading.Event()
    loop = Loop("test", ticks, SystemClock(), lambda error: LONG, over.is_set)
    loop.start()
    for tick in ticks:
        if isinstance(tick, Ticking):
            tick.wait()
    try:
        yield loop
    finally:
        over.set()
        loop.wake()
        loop.join()


def test_a_thread_calls_the_tick_of_a_loop_that_sleeps() -> None:
    tick, other = Ticking(), Ticking()
    with running(tick, other) as loop:
        asleep(loop)
        loop.call_now(tick)
        assert tick.threads[1:] == [threading.current_thread()]
        assert len(other.threads) == 1


def test_a_loop_sleeps_as_long_as_a_tick_wants_that_another_thread_called() -> None:
    delays = [LONG, 0.0, LONG]
    tick = Ticking(lambda: delays.pop(0))
    with running(tick) as loop:
        asleep(loop)
        loop.call_now(tick)
        tick.wait()
        tick.wait()  # in no time, on the thread of the loop
        assert tick.threads[1:] == [threading.current_thread(), loop._thread]


def test_a_tick_that_is_called_for_while_it_runs_is_called_again() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def act() -> float:
        inside.set()
        go_on.wait(TIMEOUT)
        return LONG

    tick = Ticking(act)
    loop = Loop("test", [tick], SystemClock(), lambda error: LONG, lambda: len(tick.threads) >= 2)
    loop.start()
    assert inside.wait(TIMEOUT)
    loop.call_now(tick)
    go_on.set()
    tick.wait()
    tick.wait()
    loop.join()
    assert set(tick.threads) == {loop._thread}


def test_a_thread_calls_several_ticks_in_the_order_of_the_loop() -> None:
    called: list[str] = []
    first, other, last = (Ticking(partial(_note, called, name)) for name in ("first", "other", "last"))
    with running(first, other, last) as loop:
        asleep(loop)
        called.clear()
        loop.call_now(last, first)
        assert called == ["first", "last"]


def test_a_tick_that_another_thread_calls_may_wait_for_the_loop() -> None:
    def act() -> float:
        if len(tick.threads) == 2:
            loop.join()
        return LONG

    tick = Ticking(act)
    with running(tick) as loop:
        asleep(loop)
        loop.call_now(tick)
        assert len(tick.threads) == 2


def test_nobody_calls_a_tick_once_the_loop_is_over() -> None:
    tick = Ticking()
    with running(tick) as loop:
        pass
    loop.call_now(tick)
    assert len(tick.threads) == 1


def test_a_thread_that_calls_ticks_wakes_no_loop_that_wakes_early_enough() -> None:
    tick, sooner = Ticking(), Ticking(lambda: LONG / 2)
    with running(tick, sooner) as loop:
        asleep(loop)
        loop.call_now(tick)
        assert loop._sleeps_until == min(loop._due)  # it does not sleep past the tick that is due first
        asleep(loop)
        assert loop._bell.wait(0) is False
    assert len(tick.threads) == 2


def test_a_tick_that_asks_for_another_is_followed_by_it_and_rings_no_bell() -> None:
    called: list[str] = []

    def first() -> float:
        called.append("first")
        return LONG

    def second() -> float:
        called.append("second")
        if called.count("second") == 1:
            loop.wake(first)
        return LONG

    loop = Loop("test", [first, second], SystemClock(), lambda error: LONG, lambda: False)
    assert loop.step() == 0.0
    assert loop._bell.wait(0) is False
    assert loop.step() > 0
    assert called == ["first", "second", "first"]


def test_a_tick_that_is_asked_for_on_another_thread_is_not_forgotten() -> None:
    def ask() -> float:
        if len(asking.threads) == 2:
            loop.wake(tick)
        return LONG

    tick, asking = Ticking(), Ticking(ask)
    with running(tick, asking) as loop:
        asleep(loop)
        loop.call_now(asking)
        tick.wait()
        assert tick.threads[1:] == [loop._thread]


def _note(called: list[str], name: str) -> float:
    called.append(name)
    return LONG


def asleep(loop: Loop) -> None:
    """Wait until no thread calls ticks: the thread of the loop sleeps, or is about to."""
    with loop._stepping:
        pass
