"""The base of all executors: an executor takes claimed runs, executes them and reports each exactly once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from mainspring.core.insight.wording import listed
from mainspring.core.run import Run
from mainspring.errors import MaxInstancesReachedError
from mainspring.executors.apscheduler import LegacyVerbs, run_coroutine_job, run_job
from mainspring.executors.execution import MayStart, Reporter, may_always_start, shown
from mainspring.executors.scoreboard import Scoreboard

__all__ = ["BaseExecutor", "MaxInstancesReachedError", "MayStart", "Reporter", "run_coroutine_job", "run_job"]

STUCK_RUNS_SHOWN: Final = 10
"""Name at most this many stuck runs in the log."""


class BaseExecutor(LegacyVerbs):
    """The base of executors, which execute runs inside this process, at most `slots` at once.

    A subclass defines `submit`, and `withdraw`, `cancel` and `shutdown` if it can. One written for APScheduler defines
    only `_do_submit_job`. For each run given to `submit`, the executor either reports once or returns it by `withdraw`.
    """

    slots: int = 10
    """The most runs that the executor executes at once."""

    # Defaults on the class, since an executor written for APScheduler may not call our __init__.
    threads_may_settle: bool = False
    """Whether the threads that report runs may also settle them and call listeners: no event loop waits for them."""
    board: Scoreboard | None = None
    """The scoreboard from which a parent process reads the runs that this process executes."""
    now: Callable[[], int] = staticmethod(lambda: time.monotonic_ns() // 1000)
    """Return microseconds by the node's monotonic clock. Reports carry them; each store turns them into its time."""
    notify: Callable[[int, Run, str], None] = staticmethod(lambda code, run, reason: None)

    def start(self, scheduler: Any, alias: str) -> None:
        """Get ready, for the first time or after a shutdown. The node sets `now` and `notify` (events) before this."""
        self._scheduler = scheduler
        self._lock = threading.RLock()
        self._logger = logging.getLogger(f"mainspring.executors.{alias}")
        self._alias = alias
        self.losses: dict[str, Run] = {}
        """Runs that still hold slots although they were cancelled or are past their time-outs."""
        self._was_accepting = True

    def shutdown(self, wait: bool = True) -> None:
        """Stop. Report waiting runs as unstarted; with `wait`, return once the started ones have been reported."""

    def submit(self, runs: Sequence[Run], report: Reporter, may_start: MayStart = may_always_start) -> None:
        """Execute runs, and call `report` once for each, from any thread.

        Call `may_start` for each run just before its start. If it returns a result, report that instead of starting.
        """
        self._submit_as_jobs(runs, report, may_start)

    def withdraw(self, older_than: int | None = None) -> list[Run]:
        """Return unstarted runs and never report them; with `older_than`, only runs submitted before that instant."""
        return []

    def cancel(self, run_id: str) -> bool:
        """Try to stop a run that has started; its report says cancelled if that worked."""
        return False

    def executes_here(self) -> bool:
        """Return True if the caller is part of a run of this executor, and so must not wait for its runs to end."""
        return False

    @property
    def stuck(self) -> int:
        """Slots lost to runs that did not end when they were stopped."""
        return 0

    @property
    def accepting(self) -> bool:
        """Whether the executor accepts more runs: no longer once all its slots are lost."""
        return self.stuck < self.slots

    @property
    def usable_slots(self) -> int:
        """The number of slots that are not lost; 0 while the executor accepts no runs."""
        return self.slots - self.stuck if self.accepting else 0

    def tell_accepting(self) -> None:
        """Log when the executor stops taking runs, and which runs block it, and when it takes runs again."""
        with self._lock:
            accepting, runs = self.accepting, list(self.losses.values())
            if accepting is self._was_accepting:
                return
            self._was_accepting = accepting
        if accepting:
            self._logger.warning("executor %r takes runs again", self._alias)
            return
        self._logger.error(
            "executor %r takes no more runs until one of these ends; all of them were cancelled or timed out: %s; "
            'run such functions in processes (ProcessPoolExecutor; isolation="process" in an app) or in a larger pool',
            self._alias,
            listed(list(map(shown, runs)), STUCK_RUNS_SHOWN),
        )
