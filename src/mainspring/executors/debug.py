"""The debug executor executes each run inline, in the thread that submits it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mainspring.core.quantities import check_seconds
from mainspring.core.run import Run
from mainspring.executors.current_run import CURRENT
from mainspring.executors.execution import MayStart, Reporter, give_back, may_always_start
from mainspring.executors.parts import PartsExecutor
from mainspring.executors.threads.slots import Slots

__all__ = ["DebugExecutor"]


class DebugExecutor(PartsExecutor):
    """An executor that executes runs one after another in the thread that submits them."""

    slots = 1
    _slots: Slots | None = None
    _closed = False

    def __init__(self, *, timeout_grace: float = 2.0) -> None:
        super().__init__()
        self.timeout_grace = check_seconds("timeout_grace", timeout_grace, text=True)

    def start(self, scheduler: Any, alias: str) -> None:
        """Get ready."""
        super().start(scheduler, alias)
        self._slots = Slots(self, self.timeout_grace)
        self._parts = (self._slots,)
        self._closed = False

    def shutdown(self, wait: bool = True) -> None:
        """Stop; with `wait`, return once the runs in other threads have ended."""
        self._closed = True
        if self._slots is not None:
            self._slots.close()
            if wait:
                self._slots.join()

    def submit(self, runs: Sequence[Run], report: Reporter, may_start: MayStart = may_always_start) -> None:
        """Execute runs now, and report them before returning."""
        slots = self._started(self._slots)
        slot = slots.open()
        before = CURRENT.get()
        try:
            for run in runs:
                item = (run, report, 0, may_start)
                if self._closed:
                    give_back([item], self._logger)
                else:
                    slots.execute(slot, item)
        finally:
            CURRENT.set(before)  # the thread belongs to the caller, which may itself be part of a run
            slots.drop(slot)
