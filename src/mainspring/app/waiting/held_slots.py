"""Runs that wait for other runs. Each holds its thread; if all threads of a process are held, it starts no run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mainspring.core.lanes import THREADS_EXECUTOR

if TYPE_CHECKING:
    from mainspring.app.placement import Workplace

__all__ = ["HeldSlots"]


class HeldSlots:
    """Counts the runs of this process that wait for other runs in a thread of its workplace."""

    def __init__(self, place: Callable[[], Workplace | None]) -> None:
        self._place = place
        self._waiting: list[int] = []

    @contextmanager
    def hold(self) -> Iterator[Callable[[], str]]:
        """Count the caller while it waits, if it is a run that holds a thread; yield a function that may complain."""
        place = self._place()
        if place is None or not place.executors[THREADS_EXECUTOR].executes_here():
            yield str
            return
        me = threading.get_ident()
        self._waiting.append(me)
        try:
            yield self._complaint
        finally:
            self._waiting.remove(me)

    def _complaint(self) -> str:
        """Return a complaint if every thread waits, as the caller does; else an empty text."""
        place = self._place()
        if place is None:
            return ""
        slots = place.executors[THREADS_EXECUTOR].slots
        if len(self._waiting) < slots:
            return ""
        return (
            f"; all {slots} threads of this process are held by runs that wait for other runs, so it starts none: let "
            "those come after (task.options(after=...), app.chain, app.gather), wait in an async def, or start more "
            "workers"
        )
