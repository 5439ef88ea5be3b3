"""A loop, and other threads that call its ticks: none is lost, and no two run at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from mainspring.clock import SystemClock
from mainspring.core.run import Call, Run
from mainspring.node.loop import Loop, Tick
from mainspring.node.store_link import HINT_SECONDS
from tests.node.bench import Bench, work

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
        loop.keep_time()
        tick.wait()
        tick.wait()  # in no time, on the thread of the loop
        assert tick.threads[1:] == [threading.current_thread(), loop._thread]


@pytest.mark.parametrize("hurry", [Loop.call_now, lambda loop, tick: loop.call_within(tick, LONG)])
def test_a_tick_that_is_called_for_while_it_runs_is_called_again(hurry: Callable[[Loop, Tick], None]) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def act() -> float:
        inside.set()
        go_on.wait(TIMEOUT)
        return LONG

    tick = Ticking(act)
    loop = Loop("test", [tick], SystemClock(), lambda error: LONG, lambda: len(tick.threads) >= 2)
    loop.start()
    assert inside.wait(TIMEOUT)
    hurry(loop, tick)
    go_on.set()
    tick.wait()
    tick.wait()
    loop.join()
    assert set(tick.threads) == {loop._thread}


def test_a_tick_is_called_within_some_time() -> None:
    tick = Ticking()
    with running(tick) as loop:
        asleep(loop)
        loop.call_within(tick, LONG / 2)
        loop.call_within(tick, 0.01)
        loop.keep_time()
        tick.wait()
        assert set(tick.threads) == {loop._thread}


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


def test_keeping_time_wakes_no_loop_that_wakes_early_enough() -> None:
    tick, sooner = Ticking(), Ticking(lambda: LONG / 2)
    with running(tick, sooner) as loop:
        asleep(loop)
        loop.call_now(tick)
        assert loop._sleeps_until == min(loop._due)  # it does not sleep past the tick that is due first
        loop.keep_time()
        asleep(loop)
        assert loop._wake.wait(0) is False
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
    assert loop._wake.wait(0) is False
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
        loop.keep_time()
        tick.wait()
        assert tick.threads[1:] == [loop._thread]


def test_a_hint_that_brought_runs_lets_due_jobs_wait_a_moment(bench: Bench) -> None:
    bench.link.work.step()
    bench.store.add_runs([Run(id="r", call=Call(work, name="work"), queue=".default", run_at=bench.clock.now())])
    bench.add("j")
    bench.link._follow_hint()
    assert list(bench.executor.given) == ["r"]
    bench.clock.advance(HINT_SECONDS)
    bench.link.work.step()
    assert len(bench.executor.given) == 2


def test_a_hint_without_runs_is_about_jobs(bench: Bench) -> None:
    bench.link.work.step()
    bench.add("j")
    bench.link._follow_hint()
    assert len(bench.executor.given) == 1


def asleep(loop: Loop) -> None:
    """Wait until no thread calls ticks: the thread of the loop sleeps, or is about to."""
    with loop._stepping:
        pass
