"""The process pool: child processes, each managed by one thread. Any of them may be killed without harm."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from multiprocessing.context import BaseContext
from typing import Any

import msgspec

from mainspring.core.quantities import check_count
from mainspring.core.run import Report, Result, Run
from mainspring.errors import WorkerDied
from mainspring.executors.execution import (
    Item,
    MayStart,
    Reporter,
    StopReason,
    failed,
    may_always_start,
    starts,
    stopped,
    tell,
)
from mainspring.executors.parts import PartsExecutor
from mainspring.executors.processes.channel import ANSWER, CALL, READY, Message
from mainspring.executors.processes.children import STARTING, Child, ChildGone
from mainspring.executors.processes.pickling import dump_call, load_reply, take_words
from mainspring.executors.threads.pool import check_options
from mainspring.executors.threads.worker_threads import WorkerThread, WorkerThreads, take_one

__all__ = ["ProcessPoolExecutor"]

_OPTIONS = ("mp_context", "initializer", "initargs", "max_tasks_per_child")


class ProcessPoolExecutor(PartsExecutor):
    """An executor that executes each run in one of up to `max_workers` child processes.

    If a child dies, its run fails with WorkerDied and another child takes its place. A time-out or a cancellation kills
    the child and every process it has started. Children end with this process, however it ends.
    """

    def __init__(self, max_workers: int = 10, pool_kwargs: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.slots = check_count("max_workers", max_workers, text=True)
        self._options = check_options(type(self).__name__, pool_kwargs, _OPTIONS)
        self._keepers: _ChildKeepers | None = None

    def start(self, scheduler: Any, alias: str) -> None:
        """Get ready; children start as they are needed."""
        super().start(scheduler, alias)
        self._keepers = _ChildKeepers(self, f"mainspring-{alias}-keeper", self._options)
        self._parts = (self._keepers,)

    def shutdown(self, wait: bool = True) -> None:
        """Stop; without `wait`, kill the children, whose runs fail with WorkerDied."""
        if self._keepers is not None:
            self._keepers.close()
            self._keepers.kill(executing=not wait)
            if wait:
                self._keepers.join()

    def submit(self, runs: Sequence[Run], report: Reporter, may_start: MayStart = may_always_start) -> None:
        """Execute runs in child processes, in this order."""
        keepers, now = self._started(self._keepers), self.now()
        keepers.put([(run, report, now, may_start) for run in runs])


class _ChildKeeper(WorkerThread):
    """A thread that manages one child."""

    def __init__(self) -> None:
        super().__init__()
        self.child: Child | None = None
        self.item: Item | None = None
        self.stop: StopReason | None = None
        self.lock = threading.Lock()


class _ChildKeepers(WorkerThreads[_ChildKeeper]):
    def __init__(self, executor: ProcessPoolExecutor, name: str, options: Mapping[str, Any]) -> None:
        super().__init__(executor.slots, name, executor._logger)
        self._now, self._board = executor.now, executor.board
        self._options = options
        self._context = _context(options.get("mp_context"))
        limit = options.get("max_tasks_per_child")
        self._runs_per_child = None if limit is None else check_count("max_tasks_per_child", limit, text=True)
        self._pid = os.getpid()
        _end_children_at_exit(self)

    def member(self) -> _ChildKeeper:
        return _ChildKeeper()

    def serve(self, member: _ChildKeeper) -> None:
        try:
            while not self.closed:
                if not self.items:
                    self.park(member)
                elif self._has_child(member) and (item := take_one(self.items)) is not None:
                    if self.items:
                        self.wake()
                    self._execute(member, item)
                    item = None
        finally:
            self._let_go(member)

    def cancel_started(self, run_id: str) -> bool:
        for keeper in list(self.members):
            with keeper.lock:
                if keeper.item is not None and keeper.child is not None and keeper.item[0].id == run_id:
                    keeper.stop = StopReason.CANCEL
                    keeper.child.kill()
                    return True
        return False

    def kill(self, executing: bool) -> None:
        """Kill all children, or only the idle ones."""
        for keeper in list(self.members):
            with keeper.lock:
                if keeper.child is not None and (executing or keeper.item is None):
                    keeper.child.kill()

    def end_at_exit(self) -> None:
        # A fork of this process must not kill the children of its parent.
        if self._pid == os.getpid():
            with STARTING:
                self.closed, self.hiring = True, False
            self.kill(executing=True)

    def _has_child(self, keeper: _ChildKeeper) -> bool:
        """Return True if the keeper has a living child. If none can be started, fail one waiting run with the error."""
        if keeper.child is not None:
            if not keeper.child.is_gone():
                return True
            self._let_go(keeper)
        if len(self.items) > 1:
            self.wake()
        try:
            with STARTING:
                if self.closed:
                    return False
                child = Child(self._context, self._name, self._options)
            with keeper.lock:
                keeper.child = child
            problem = self._greeting(child)
        except BaseException as error:
            problem = error
        if problem is None:
            return True
        self._let_go(keeper)
        if not self.closed:
            self._logger.error("a child process could not be started", exc_info=problem)
            item = take_one(self.items)
            if item is not None:
                now = self._now()
                tell(item[1], failed(item[0], problem, now, now), self._logger)
        return False

    def _greeting(self, child: Child) -> BaseException | None:
        try:
            greeting = child.receive(None)
        except ChildGone:
            died = WorkerDied(child.pid, child.dismiss())
            died.add_note(
                "It ended while it was starting; see its output on stderr. Often the main module starts "
                "processes when it is imported: put that code under if __name__ == '__main__'."
            )
            return died
        return None if greeting is None or greeting.kind == READY else load_reply(greeting.body, child.pid)[1]

    def _execute(self, keeper: _ChildKeeper, item: Item) -> None:
        if not starts(item, self._logger):
            return None
        run, report = item[0], item[1]
        child, started = keeper.child, self._now()
        try:
            call = Message(CALL, run.id, run.attempt, dump_call(run))
        except BaseException as error:
            return tell(report, failed(run, error, started, self._now()), self._logger)
        assert child is not None
        with keeper.lock:
            keeper.item, keeper.stop = item, None
        if self._board is not None:
            self._board.enter(run.id, run.policy.timeout, apart=True)
        try:
            child.send(call)
            answer = self._answer(child, item)
            stop = None if answer is not None else StopReason.TIMEOUT
        except ChildGone:
            answer = stop = None
        with keeper.lock:
            keeper.item = None
            stop = stop or keeper.stop
        message = self._message(keeper, child, run, answer, stop, started)
        if self._board is not None:
            self._board.end(run.id)
        tell(report, message, self._logger)
        child.runs += 1
        if child.runs == self._runs_per_child:
            self._let_go(keeper)

    def _answer(self, child: Child, item: Item) -> bytes | None:
        """Return the child's answer, or None at the time-out; pass on the notes of the run meanwhile."""
        run, report = item[0], item[1]
        timeout = run.policy.timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            message = child.receive(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if message is None:
                return None
            if not message.is_about(run):
                continue  # it comes from a thread that an earlier run left behind
            if message.kind == ANSWER:
                return message.body
            sink: Any = report
            try:
                notes = sink.notes_of(run)
                take_words(message.body, notes)
                sink.notes_changed(notes)
            except Exception:
                self._logger.exception("the progress, data or log lines of run %s are lost", run.id)

    def _message(
        self, keeper: _ChildKeeper, child: Child, run: Run, answer: bytes | None, stop: StopReason | None, started: int
    ) -> Report:
        if answer is None:
            if stop is not None:
                child.kill()
            # The child must be gone before the report: a retry must not overlap with it.
            died = WorkerDied(child.pid, self._let_go(keeper))
            finished = self._now()
            if stop is not None:
                return stopped(run, stop, None, started, finished)
            return failed(run, died, started, finished)
        value, exception, described = load_reply(answer, child.pid)
        finished = self._now()
        if exception is None:
            return Report(run, Result.RETURNED, value, None, None, started, finished)
        error = described and msgspec.structs.replace(described, at=finished, attempt=run.attempt)
        return Report(run, Result.RAISED, None, exception, error, started, finished)

    def _let_go(self, keeper: _ChildKeeper) -> int | None:
        """Dismiss the keeper's child, living or dead, and return its exit code."""
        with keeper.lock:
            child, keeper.child = keeper.child, None
        return None if child is None else child.dismiss()


def _context(given: Any) -> BaseContext:
    if isinstance(given, BaseContext):
        return given
    return multiprocessing.get_context(given or "spawn")


_all_keepers: weakref.WeakSet[_ChildKeepers] = weakref.WeakSet()


def _end_children_at_exit(keepers: _ChildKeepers) -> None:
    if not _all_keepers:
        # Register now, not at import: this must run before multiprocessing's own handler, which waits for children.
        atexit.unregister(_at_exit)
        atexit.register(_at_exit)
    _all_keepers.add(keepers)


def _at_exit() -> None:
    for keepers in list(_all_keepers):
        keepers.end_at_exit()
