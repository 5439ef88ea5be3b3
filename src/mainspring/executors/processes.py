"""The process pool: child processes of its own, each kept by a thread, any of which may be killed without harm."""

from __future__ import annotations

import atexit
import multiprocessing
import multiprocessing.connection
import os
import select
import signal
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any, Final

import msgspec

from mainspring.errors import WorkerDied
from mainspring.executors import child as _child
from mainspring.executors.base import BaseExecutor
from mainspring.executors.crew import Crew, Member, take_back, take_one, take_run
from mainspring.executors.crossing import dump_call, load_reply
from mainspring.executors.execution import Item, Reporter, Stop, failed, late, stopped, tell
from mainspring.executors.threads import at_least_one, check_options
from mainspring.run import Report, Result, Run

__all__ = ["ProcessPoolExecutor"]

_OPTIONS = ("mp_context", "initializer", "initargs", "max_tasks_per_child")
_LEAVE_TIME: Final = 5.0
_LONGEST_POLL: Final = 1_000_000.0


class ProcessPoolExecutor(BaseExecutor):
    """Executes each run in one of up to `max_workers` child processes.

    A child that dies fails the run it executed (WorkerDied) and is replaced. A time-out or a cancellation kills the
    child with all that it has started. Children end with this process, however it ends.
    """

    def __init__(self, max_workers: int = 10, pool_kwargs: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.slots = at_least_one("max_workers", max_workers)
        self._options = check_options(type(self).__name__, pool_kwargs, _OPTIONS)
        self._crew: _Keepers | None = None

    def start(self, scheduler: Any, alias: str) -> None:
        """Get ready; children start as they are needed."""
        super().start(scheduler, alias)
        self._crew = _Keepers(self, f"mainspring-{alias}-keeper", self._options)

    def shutdown(self, wait: bool = True) -> None:
        """Stop; without `wait` the children are killed and what they executed fails with WorkerDied."""
        crew = self._crew
        if crew is not None:
            crew.close()
            crew.kill(only_idle=wait)
            if wait:
                crew.join()

    def submit(self, runs: Sequence[Run], report: Reporter) -> None:
        """Execute runs in child processes, in this order as far as there are children."""
        if self._crew is None:
            raise RuntimeError(f"{type(self).__name__} has not been started; call start(scheduler, alias) first")
        now = self.now()
        self._crew.put([(run, report, now) for run in runs])

    def withdraw(self, older_than: int | None = None) -> list[Run]:
        """Take back runs that no child has been given yet."""
        return [] if self._crew is None else take_back(self._crew.items, older_than)

    def cancel(self, run_id: str) -> bool:
        """Kill the child that executes a run."""
        return self._crew is not None and self._crew.cancel(run_id)
