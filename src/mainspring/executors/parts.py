"""Executors made of parts. Each part executes runs in one way: in threads, in child processes or on a loop."""

from __future__ import annotations

from typing import Protocol, TypeVar

from mainspring.core.run import Run
from mainspring.executors.base import BaseExecutor

__all__ = ["PartsExecutor", "RunPart"]

T = TypeVar("T")


class RunPart(Protocol):
    """A part of an executor that executes runs in one way."""

    def withdraw(self, older_than: int | None) -> list[Run]:
        """Return unstarted runs, and never report them; with `older_than`, only runs submitted before that instant."""

    def cancel(self, run_id: str) -> bool:
        """Try to stop a run; its report says cancelled if that worked."""

    def executes_here(self) -> bool:
        """Return True if the caller is part of a run of this part, and so must not wait for its runs to end."""

    @property
    def stuck(self) -> int:
        """Slots lost to runs that did not end when they were stopped."""


class PartsExecutor(BaseExecutor):
    """An executor whose `start` fills `_parts`; a subclass defines `start`, `submit` and `shutdown`."""

    _parts: tuple[RunPart, ...] = ()

    def withdraw(self, older_than: int | None = None) -> list[Run]:
        """Take back runs that no part has started."""
        return [run for part in self._parts for run in part.withdraw(older_than)]

    def cancel(self, run_id: str) -> bool:
        """Stop a run in the part that executes it."""
        return any(part.cancel(run_id) for part in self._parts)

    def executes_here(self) -> bool:
        """Return True if the caller is part of a run of this executor."""
        return any(part.executes_here() for part in self._parts)

    @property
    def stuck(self) -> int:
        """Slots lost to runs that did not end when they were stopped."""
        stuck = 0
        for part in self._parts:
            stuck += part.stuck
        return stuck

    def _started(self, part: T | None) -> T:
        """Return a part; raise RuntimeError before the executor is started."""
        if part is None:
            raise RuntimeError(f"{type(self).__name__} has not been started; call start(scheduler, alias) first")
        return part
