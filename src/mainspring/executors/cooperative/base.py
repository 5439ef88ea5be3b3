"""Runs that take turns on one loop: the common part of event loops and greenlets."""

from __future__ import annotations

import logging
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from mainspring.core.references import maybe_ref
from mainspring.core.run import Report, Result, Run
from mainspring.executors.current_run import CURRENT
from mainspring.executors.execution import (
    Item,
    MayStart,
    OneTimeRight,
    Reporter,
    StopReason,
    announce_stuck,
    failed,
    give_back,
    may_end_now,
    starts,
    stopped,
    tell,
)
from mainspring.executors.forks import leave_if_forked
from mainspring.executors.threads.worker_threads import cancel_waiting, take_back, take_one

if TYPE_CHECKING:
    from mainspring.executors.base import BaseExecutor

__all__ = ["Cooperative", "StartedEntry", "Timer", "sort_out"]

_JOIN_STEP_SECONDS: Final = 0.1


class Timer(Protocol):
    """A call that the loop will make later."""

    def cancel(self) -> None:
        """Prevent the call."""


class StartedEntry:
    """A run that has started on the loop."""

    __slots__ = ("at", "item", "report", "stop", "stuck", "task", "timer")

    def __init__(self, item: Item, at: int) -> None:
        self.item, self.at = item, at
        self.task: Any = None
        self.timer: Timer | None = None
        self.stop: StopReason | None = None
        self.stuck = False
        self.report = OneTimeRight()


class Cooperative(ABC):
    """The runs of an executor on a loop, at most `limit` at once; the loop may belong to the executor or to others.

    Any thread may call the public methods and `_wait`, `_give_back`, `_abandon`, `_call`; the loop calls the others.
    """

    what = "its task"

    def __init__(self, executor: BaseExecutor, limit: int, grace: float) -> None:
        self.waiting: deque[Item] = deque()
        self.stuck = 0
        self.on_empty: Callable[[], None] = lambda: None
        """Called on the loop once this is closed and only stuck runs are left."""
        self._started: set[StartedEntry] = set()
        self._board = executor.board
        self._now: Callable[[], int] = executor.now
        self._notify = executor.notify
        self._losses, self._tell_accepting = executor.losses, executor.tell_accepting
        self._logger: logging.Logger = executor._logger
        self._limit, self._grace = limit, grace
        self._home = os.getpid()
        self._closed = False
        self._none_left = threading.Event()

    @abstractmethod
    def _call(self, func: Callable[..., Any], *args: Any) -> bool:
        """Make the loop call a function; return False if the loop has ended."""

    @abstractmethod
    def _later(self, seconds: float, func: Callable[..., Any], *args: Any) -> Timer:
        """Make the loop call a function after some seconds."""

    @abstractmethod
    def _start(self, entry: StartedEntry) -> Any:
        """Start a run and return its task, which must call `_end` when it ends."""

    @abstractmethod
    def _halt(self, entry: StartedEntry) -> None:
        """Raise in a run's task the exception for `entry.stop`; without a reason, the one for a shutdown."""

    @abstractmethod
    def _turns(self) -> bool:
        """Return True if the loop is running, so that started runs can end."""

    def put(self, items: Iterable[Item]) -> None:
        """Let the loop start these runs as soon as it can."""
        self.waiting.extend(items)
        if self._closed:
            self._give_back()
        elif not self._call(self._begin):
            self._abandon()

    def withdraw(self, older_than: int | None) -> list[Run]:
        """Take back runs that the loop has not started."""
        if not self._call(self._check_left):
            self._abandon()
        return take_back(self.waiting, older_than)

    def cancel(self, run_id: str) -> bool:
        """Stop the task of a run."""
        if cancel_waiting(self.waiting, run_id, self._logger):
            return True
        for entry in list(self._started):
            if entry.item[0].id == run_id:
                return self._call(self._stop, entry, StopReason.CANCEL)
        return False

    def close(self) -> None:
        """Start no more runs."""
        self._closed = True
        self._give_back()
        if not self._call(self._check_left):
            self._abandon()

    def halt_all(self) -> None:
        """Raise an exception in all tasks, with which their runs fail."""
        for entry in list(self._started):
            self._call(self._halt, entry)

    def join(self) -> None:
        """Wait until all runs have ended; fail those whose loop no longer runs, since they can never end."""
        while not self._wait(_JOIN_STEP_SECONDS):
            if not self._turns():
                self._abandon()
                return
        for entry in list(self._started):
            self._give_up(entry)

    def _wait(self, seconds: float) -> bool:
        return self._none_left.wait(seconds)

    def _give_back(self) -> None:
        give_back(iter(lambda: take_one(self.waiting), None), self._logger)

    def _abandon(self) -> None:
        """Report every run that a dead loop leaves behind."""
        self._give_back()
        for entry in list(self._started):
            self._started.discard(entry)
            if entry.report.claim():
                error = RuntimeError("the event loop ended before the run did")
                tell(entry.item[1], failed(entry.item[0], error, entry.at, self._now()), self._logger)

    def _begin(self) -> None:
        while len(self._started) < self._limit and (item := take_one(self.waiting)) is not None:
            if not starts(item, self._logger):
                continue
            run, entry = item[0], StartedEntry(item, self._now())
            self._started.add(entry)
            if run.policy.timeout is not None:
                entry.timer = self._later(run.policy.timeout, self._stop, entry, StopReason.TIMEOUT)
            if self._board is not None:
                self._board.enter(run.id, run.policy.timeout)
            CURRENT.set((run, item[1]))  # the new task copies this context
            entry.task = self._start(entry)

    def _end(self, entry: StartedEntry, value: Any, error: BaseException | None) -> None:
        """Report a run that has ended, and start the next."""
        leave_if_forked(self._home, error)
        if entry.timer is not None:
            entry.timer.cancel()
        self._started.discard(entry)
        run, report = entry.item[0], entry.item[1]
        if entry.stuck:
            entry.stuck = False
            self.stuck -= 1
            self._losses.pop(run.id, None)
            self._tell_accepting()
        if self._board is not None:
            self._board.end(run.id)
        if entry.report.claim():
            tell(report, self._message(entry, value, error), self._logger)
        self._check_left()
        if self.waiting:
            self._call(self._begin)

    def _message(self, entry: StartedEntry, value: Any, error: BaseException | None) -> Report:
        """Make the report of a run that has ended."""
        run, finished = entry.item[0], self._now()
        if entry.stop is not None:
            return stopped(run, entry.stop, error, entry.at, finished)
        if error is not None:
            return failed(run, error, entry.at, finished)
        return Report(run, Result.RETURNED, value, None, None, entry.at, finished)

    def _check_left(self) -> None:
        if self._closed and all(entry.stuck for entry in self._started):
            self._none_left.set()
            self.on_empty()

    def _stop(self, entry: StartedEntry, stop: StopReason) -> None:
        """Stop a run; if it goes on after the grace, count its slot as lost and give the run up."""
        if entry in self._started and entry.stop is None:
            entry.stop = stop
            if entry.timer is not None:
                entry.timer.cancel()
            entry.timer = self._later(self._grace, self._lose, entry, stop)
            self._halt(entry)

    def _lose(self, entry: StartedEntry, stop: StopReason) -> None:
        entry.stuck = True
        self.stuck += 1
        run = entry.item[0]
        self._losses[run.id] = run
        announce_stuck(run, stop, self.what, "", self._notify, self._logger)
        self._tell_accepting()
        if may_end_now(run, stop):
            self._give_up(entry)
        self._check_left()

    def _give_up(self, entry: StartedEntry) -> None:
        run, report = entry.item[0], entry.item[1]
        if entry.report.claim():
            tell(report, stopped(run, entry.stop or StopReason.TIMEOUT, None, entry.at, self._now()), self._logger)


def sort_out(
    runs: Sequence[Run],
    report: Reporter,
    may_start: MayStart,
    on_loop: Callable[[Callable[..., Any]], bool],
    executor: BaseExecutor,
) -> tuple[list[Item], list[Item]]:
    """Split runs into those for the loop and the others; report those whose function cannot be found."""
    here: list[Item] = []
    elsewhere: list[Item] = []
    now = executor.now()
    for run in runs:
        try:
            func = maybe_ref(run.call.func)
        except BaseException as error:
            tell(report, failed(run, error, now, executor.now()), executor._logger)
        else:
            (here if on_loop(func) else elsewhere).append((run, report, now, may_start))
    return here, elsewhere
