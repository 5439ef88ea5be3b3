"""A process that the user's code forks does not go on in a node's loops."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from mainspring.clock import SystemClock
from mainspring.events import EVENT_SCHEDULER_STARTED, SchedulerEvent
from mainspring.node.events.listeners import Listeners
from mainspring.node.loop import Loop

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]

WENT_ON = 99


def exit_code_of_fork_in(call: Callable[[Callable[[], int]], None]) -> int:
    """Have something call a function that forks; return how the forked process ended."""
    home, children = os.getpid(), []

    def fork() -> int:
        children.append(os.fork())
        return children[0]

    call(fork)
    if os.getpid() != home:
        os._exit(WENT_ON)
    return os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1])


def test_a_process_that_a_listener_forks_ends_with_the_listener() -> None:
    def call(fork: Callable[[], int]) -> None:
        listeners = Listeners()
        listeners.add(lambda event: fork())
        listeners.call(SchedulerEvent(EVENT_SCHEDULER_STARTED))

    assert exit_code_of_fork_in(call) == 0


def test_a_process_that_a_listener_forks_ends_with_the_error_of_the_listener() -> None:
    def call(fork: Callable[[], int]) -> None:
        def listen(event: SchedulerEvent) -> None:
            if fork() == 0:
                raise ValueError("in the forked process")

        listeners = Listeners()
        listeners.add(listen)
        listeners.call(SchedulerEvent(EVENT_SCHEDULER_STARTED))

    assert exit_code_of_fork_in(call) == 1


def test_a_process_that_a_tick_forks_ends_with_the_tick() -> None:
    def call(fork: Callable[[], int]) -> None:
        ticks: list[int] = []

        def tick() -> float:
            ticks.append(fork())
            return 0.0

        Loop("test", (tick,), SystemClock(), lambda error: 0.0, lambda: bool(ticks)).run()

    assert exit_code_of_fork_in(call) == 0
