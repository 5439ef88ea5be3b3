"""Shelter: while a thread is inside a store, no other thread raises an exception in it.

A time-out or a cancellation is raised in the thread of a run at any step of its code. Inside a store it would harm
others: callers that share a commit, a half-written table, a reply that the next command would read. So the interrupting
thread first announces its request, then checks whether the run's thread is inside a store, and if so leaves the raising
to it. The run's thread first notes that it is inside, then looks for requests; when it leaves, it looks once more and
raises what was left to it. One of the two always sees the other, and a call that nobody interrupts pays for two
attribute writes.
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
    """A request to raise an exception in a thread."""

    __slots__ = ("left", "settled")

    def __init__(self) -> None:
        self.settled = False
        """Whether the interrupting thread has finished with this request."""
        self.left: type[BaseException] | None = None
        """The exception that the thread raises itself when it leaves the store."""


class Shelter:
    """The state of one thread: whether it is inside a store, and the requests to interrupt it."""

    __slots__ = ("_knocks", "inside")

    def __init__(self) -> None:
        self.inside = False
        self._knocks: list[InterruptRequest] = []

    def announce(self, knock: InterruptRequest) -> None:
        """Add a request; only after that may the caller check whether the thread is inside."""
        self._knocks.append(knock)

    def withdraw(self, knock: InterruptRequest) -> None:
        """Remove a request, unless the thread has removed it."""
        with suppress(ValueError):
            self._knocks.remove(knock)

    def enter(self) -> None:
        """Enter the store; an exception on its way to this thread is raised here."""
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
        """Leave the store, and raise the exception that a request has left to this thread."""
        self.inside = False
        if self._knocks:
            self._open()

    def _open(self) -> None:
        """Wait until a request is settled, and raise the exception that it left to this thread."""
        knock = self._knocks[0]
        while not knock.settled:
            time.sleep(0)
        time.sleep(0)  # an exception raised in this thread arrives with the next call, which is this one
        self.withdraw(knock)
        left, knock.left = knock.left, None
        if left is not None:
            raise left


class _ThisThread(threading.local):
    shelter: Shelter | None = None


_here = _ThisThread()


def shelter_of_this_thread() -> Shelter:
    """Return the shelter of this thread; a run that can be interrupted needs one."""
    shelter = _here.shelter
    if shelter is None:
        shelter = _here.shelter = Shelter()
    return shelter


def sheltered(method: Callable[P, R]) -> Callable[P, R]:
    """Shelter the calling thread from interrupts while it is in this method of a store."""

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
    """Shelter the calling thread while it is in any public method of a store's class, except those named."""

    def decorate(cls: C) -> C:
        for name, method in list(vars(cls).items()):
            if not name.startswith("_") and callable(method) and name not in but:
                setattr(cls, name, sheltered(method))
        return cls

    return decorate
