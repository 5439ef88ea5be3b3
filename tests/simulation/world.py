"""A world in one thread: simulated time, processes that die and freeze, calls that are lost; all by one seeded chance.

Every loop and every execution is a greenlet. It gives way wherever it waits or calls the store, and the world decides
who goes on next. The same seed gives the same history.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

SECOND = 1_000_000
START = 1_767_225_600 * SECOND


class Process:
    """A process: what it runs stops when it dies, and stands still while it is frozen."""

    def __init__(self, world: World, name: str, skew: int) -> None:
        self.world, self.name, self.skew = world, name, skew
        self.alive = True
        self.frozen_until = 0

    def spawn(self, func: Callable[..., Any], *args: Any) -> None:
        """Run something in this process."""
        task = greenlet(lambda: func(*args), parent=self.world.hub)
        self.world.keep.append(task)
        self.world.push(0, self, task)

    def kill(self) -> None:
        """End here and now."""
        self.alive = False
        self.world.trace("kill", self.name)
        if getcurrent() is not self.world.hub:
            self.world.hub.switch()  # and never come back
            raise GreenletExit

    def freeze(self, us: int) -> None:
        """Stand still for a while."""
        self.frozen_until = max(self.frozen_until, self.world.now + us)
        self.world.trace("freeze", self.name, us)


class World:
    """The order of events."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.now = START
        self.hub = getcurrent()
        self.keep: list[greenlet] = []
        self.history = hashlib.sha256()
        self._events: list[tuple[int, int, Process, Any, int]] = []
        self._number = self._turns = 0

    def push(self, delay: int, process: Process, task: Any, turn: int = 0) -> None:
        """Have a greenlet go on after `delay` microseconds, if it still waits for this turn."""
        self._number += 1
        heapq.heappush(self._events, (self.now + delay, self._number, process, task, turn))

    def new_turn(self) -> int:
        """Name one wait: what was meant for an earlier one of the same greenlet does not end it."""
        self._turns += 1
        return self._turns

    def wait_for(self, turn: int) -> None:
        """Give way until that turn comes."""
        while self.hub.switch() != turn:
            pass

    def sleep(self, process: Process, us: int) -> None:
        """Let time pass for the calling greenlet."""
        turn = self.new_turn()
        self.push(us, process, getcurrent(), turn)
        self.wait_for(turn)

    def call_at(self, delay: int, process: Process, func: Callable[[], None]) -> None:
        """Call a function of the world's own."""
        self.push(delay, process, func)

    def run(self, until: int, done: Callable[[], bool] = lambda: False) -> None:
        """Let events happen until a time, or until nothing is left to wait for."""
        while self._events and self._events[0][0] <= until and not done():
            at, _, process, task, turn = heapq.heappop(self._events)
            self.now = max(self.now, at)
            if not process.alive:
                continue
            if process.frozen_until > self.now:
                self.push(process.frozen_until - self.now, process, task, turn)
                continue
            if isinstance(task, greenlet):
                if task:
                    task.switch(turn)
                elif not task.dead:
                    task.switch()
            else:
                task()
        if not done():
            self.now = max(self.now, until)

    def trace(self, *what: Any) -> None:
        """Add to the history, whose digest tells two runs apart."""
        self.history.update(repr((self.now, *what)).encode())


class SimWake:
    """What a loop sleeps on."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._flag = False
        self._sleeper: tuple[Any, int] | None = None

    def set(self) -> None:
        """Wake the sleeper, now or at its next sleep."""
        self._flag = True
        if self._sleeper is not None:
            task, turn = self._sleeper
            self._sleeper = None
            self._process.world.push(0, self._process, task, turn)

    def clear(self) -> None:
        """Forget earlier wake-ups."""
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until woken or until `timeout` seconds have passed."""
        if self._flag:
            return True
        world, me = self._process.world, getcurrent()
        turn = world.new_turn()
        world.push(int((1e6 if timeout is None else timeout) * SECOND) + 1, self._process, me, turn)
        self._sleeper = (me, turn)
        world.wait_for(turn)
        self._sleeper = None
        return self._flag


class SimClock:
    """A process's clocks: its wall clock is wrong by its skew, its monotonic one starts anywhere."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now(self) -> int:
        """Return the wall-clock instant, as this process believes."""
        return self._process.world.now + self._process.skew

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return (self._process.world.now - START) / SECOND + 1000.0

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return self._process.world.chance.random()

    def wake(self) -> SimWake:
        """Make something to sleep on."""
        return SimWake(self._process)
