"""Shelter: while a thread is inside a store, nobody raises an exception in it.

A time-out or a cancellation is raised in the thread of a run at any step of its code. Inside a store it would strike
others: callers who share a commit, a table that is half written, a reply that the next command would read. So whoever
interrupts first announces itself, then looks whether the thread is inside, and leaves it to the thread if it is. The
thread says that it is inside, then looks who has announced itself; outside again it looks once more, and raises what
was left to it. One of the two always sees the other, and a call that nobody interrupts pays for two attribute writes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["InterruptRequest", "Shelter", "shelter_of_this_thread", "sheltered", "sheltering"]

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


class InterruptRequest:
    """Somebody's wish to raise an exception in a thread."""

    __slots__ = ("left", "settled")

    def __init__(self) -> None:
        self.settled = False
        """Whether whoever interrupts has done all it will do."""
        self.left: type[BaseException] | None = None
        """What the thread raises itself when it leaves the store."""


class Shelter:
    """Whether a thread is inside a store, and who wants to interrupt it."""

    __slots__ = ("_knocks", "inside")

    def __init__(self) -> None:
        self.inside = False
        self._knocks: list[InterruptRequest] = []

    def announce(self, knock: InterruptRequest) -> None:
        """Have the thread look out; only then look whether it is inside."""
        self._knocks.append(knock)

    def withdraw(self, knock: InterruptRequest) -> None:
        """Take back what was announced, if the thread has not done so."""
        with suppress(ValueError):
            self._knocks.remove(knock)

    def enter(self) -> None:
        """Say that this thread is inside from now on; what was on its way strikes here."""
        try:
            self.inside = True
            while self._knocks:
                self.inside = False
                self._open()
                self.inside = True
        except BaseException:
            self.inside = False
            raise

    def leave(self) -> None:
        """Say that this thread is outside again, and raise what has waited for that."""
        self.inside = False
        if self._knocks:
            self._open()

    def _open(self) -> None:
        """Wait until one who interrupts has done so, and raise what was left to this thread."""
        knock = self._knocks[0]
        while not knock.settled:
            time.sleep(0)
        time.sleep(0)  # what was raised in this thread arrives with the next call, here
        self.withdraw(knock)
        left, knock.left = knock.left, None
        if left is not None:
            raise left


class _ThisThread(threading.local):
    shelter: Shelter | None = None


_here = _ThisThread()


def shelter_of_this_thread() -> Shelter:
    """Return the shelter of this thread; runs that can be interrupted are executed in it."""
    shelter = _here.shelter
    if shelter is None:
        shelter = _here.shelter = Shelter()
    return shelter


def sheltered(method: Callable[P, R]) -> Callable[P, R]:
    """Have nobody interrupt the thread while it is in this method of a store."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        shelter = _here.shelter
        if shelter is None or shelter.inside:
            return method(*args, **kwargs)
        shelter.enter()
        try:
            return method(*args, **kwargs)
        finally:
            shelter.leave()

    return call


def sheltering(*but: str) -> Callable[[C], C]:
    """Have nobody interrupt the thread while it is in any public method of a store's class, but for a few."""

    def decorate(cls: C) -> C:
        for name, method in list(vars(cls).items()):
            if not name.startswith("_") and callable(method) and name not in but:
                setattr(cls, name, sheltered(method))
        return cls

    return decorate
