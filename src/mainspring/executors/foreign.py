"""Runs in the threads of somebody else's pool."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mainspring.executors.crew import take_back, take_one, take_run
from mainspring.executors.execution import Item, give_back, tell
from mainspring.executors.slots import Slots
from mainspring.run import Report, Result, Run

if TYPE_CHECKING:
    from mainspring.executors.base import BaseExecutor

__all__ = ["ForeignThreads"]


class ForeignThreads:
    """Runs wait here until a thread of the pool comes to take one; `send` asks the pool for a thread."""

    def __init__(self, executor: BaseExecutor, grace: float, send: Callable[[Callable[[], None]], object]) -> None:
        self._waiting: deque[Item] = deque()
        self._slots = Slots(executor, grace)
        self._logger: logging.Logger = executor._logger
        self._send = send
        self._closed = False

    @property
    def stuck(self) -> int:
        """Threads lost to runs that did not end at their time-out."""
        return self._slots.stuck

    def put(self, items: Sequence[Item]) -> None:
        """Ask for a thread for each run."""
        self._waiting.extend(items)
        try:
            for _ in items:
                self._send(self._take)
        except RuntimeError:  # the pool is no more
            self._give_back()
        if self._closed:
            self._give_back()

    def withdraw(self, older_than: int | None) -> list[Run]:
        """Take back runs that no thread has come for."""
        return take_back(self._waiting, older_than)

    def cancel(self, run_id: str) -> bool:
        """Interrupt the thread of a run."""
        item = take_run(self._waiting, run_id)
        if item is None:
            return self._slots.cancel(run_id)
        tell(item[1], Report(item[0], Result.CANCELLED), self._logger)
        return True

    def close(self) -> None:
        """Start nothing more."""
        self._closed = True
        self._give_back()
        self._slots.close()

    def join(self) -> None:
        """Wait until what has started has ended."""
        self._slots.join()

    def _give_back(self) -> None:
        give_back(iter(lambda: take_one(self._waiting), None), self._logger)

    def _take(self) -> None:
        slot = self._slots.open()
        try:
            item = take_one(self._waiting)
            if item is not None:
                self._slots.execute(slot, item)
        finally:
            self._slots.drop(slot)
