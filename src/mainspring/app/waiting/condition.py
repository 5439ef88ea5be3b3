"""Wait for a condition that depends on ends of runs, such as "half of the group has ended"."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from mainspring.app.waiting.base import BaseWaiter, RunQuestion
from mainspring.jobstores.base import JobStore

__all__ = ["ConditionWaiter"]


class ConditionWaiter(BaseWaiter):
    """Waits until a condition holds; `holds` reads the store, on the thread that looks."""

    def __init__(self, holds: Callable[[], bool], timeout: float | None = None) -> None:
        super().__init__(timeout)
        self._holds = holds

    def questions(self, store: JobStore) -> Generator[RunQuestion, Sequence[Any], bool]:
        yield from ()  # `holds` reads the store itself, so there is no question to share
        met = self._holds()
        self._answered, self.away = True, False
        return met

    def _unended(self) -> str:
        return f"the condition has not come true in {self._timeout:g} s"
