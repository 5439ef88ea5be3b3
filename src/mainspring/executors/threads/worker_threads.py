"""Daemon threads that take runs from one shared deque."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from mainspring.core.run import Report, Result, Run
from mainspring.executors.execution import Item, give_back, tell

__all__ = ["WorkerThread", "WorkerThreads", "cancel_waiting", "take_back", "take_one"]


class WorkerThread:
    """One of the threads; it sleeps on its bell."""

    def __init__(self) -> None:
        self.bell = threading.Lock()
        self.bell.acquire()
        self.gone = threading.Event()
        """Set once nobody needs to wait for this thread."""
        self.thread: threading.Thread | None = None


M = TypeVar("M", bound=WorkerThread)


class WorkerThreads(ABC, Generic[M]):
    """Up to `size` threads, started as they are needed.

    Wake-ups form a chain: `put` wakes one thread, and each thread that takes a run while others wait wakes the next.
    A thread that finds nothing to do enters itself in `idle` and looks again before it sleeps. So if a run is added in
    between, either the thread sees the run or `put` sees the thread.
    """

    def __init__(self, size: int, name: str, logger: logging.Logger) -> None:
        self.items: deque[Item] = deque()
        self.idle: list[M] = []
        self.members: list[M] = []
        self.closed = False
        self.hiring = True
        """Whether there are fewer threads than `size`."""
        self._size, self._name, self._logger = size, name, logger
        self._lock = threading.Lock()

    @abstractmethod
    def member(self) -> M:
        """Make the record of one more thread."""

    @abstractmethod
    def cancel_started(self, run_id: str) -> bool:
        """Stop a run that a thread has taken."""

    @abstractmethod
    def serve(self, member: M) -> None:
        """Take runs and execute them until this is closed; called in the thread itself."""

    def put(self, items: Iterable[Item]) -> None:
        """Add runs to be executed, in order."""
        self.items.extend(items)
        self.wake()
        if self.closed:  # `close` may have run before these were added
            self.empty()

    def withdraw(self, older_than: int | None) -> list[Run]:
        """Take back runs that no thread has taken yet."""
        return take_back(self.items, older_than)

    def cancel(self, run_id: str) -> bool:
        """Stop a run, whether it waits or is executed."""
        return cancel_waiting(self.items, run_id, self._logger) or self.cancel_started(run_id)

    def executes_here(self) -> bool:
        """Return True if the caller is executed in one of the threads."""
        return False

    @property
    def stuck(self) -> int:
        """Threads lost to runs that did not end when they were stopped."""
        return 0

    def wake(self) -> None:
        """Wake one thread, or start one more."""
        try:
            self.idle.pop().bell.release()
        except IndexError:
            if self.hiring:
                self._hire()

    def park(self, member: M) -> None:
        """Sleep until there may be a run to take."""
        self.idle.append(member)
        if self.items or self.closed:
            try:
                self.idle.remove(member)
                return
            except ValueError:
                pass  # another thread has taken this one off the list and is about to ring its bell
        member.bell.acquire()

    def empty(self) -> None:
        """Report every run that has not started as unstarted."""
        give_back(iter(lambda: take_one(self.items), None), self._logger)

    def close(self) -> None:
        """Start no more runs; each thread ends with the run it executes."""
        with self._lock:
            self.closed = True
            self.hiring = False
        self.empty()
        try:
            while True:
                self.idle.pop().bell.release()
        except IndexError:
            pass

    def join(self) -> None:
        """Wait until the threads have ended, except the caller's own and those that were given up."""
        for member in self.members:
            if member.thread is not None and member.thread is not threading.current_thread():
                member.gone.wait()
                if not self.gave_up(member.thread):
                    member.thread.join()

    def gave_up(self, thread: threading.Thread) -> bool:
        """Return True if this thread will not end."""
        return False

    def _hire(self) -> None:
        with self._lock:
            if not self.hiring:
                return
            member = self.member()
            self.members.append(member)
            self.hiring = len(self.members) < self._size
            name = f"{self._name}_{len(self.members) - 1}"
            member.thread = threading.Thread(target=self._live, args=(member,), name=name, daemon=True)
            try:
                member.thread.start()
            except RuntimeError:
                # The system has no more threads. The ones we have take the waiting runs, or the node withdraws them.
                self.members.remove(member)
                self.hiring = True
                self._logger.exception("cannot start thread %s of %s", name, self._size)

    def _live(self, member: M) -> None:
        try:
            while not self.closed:
                try:
                    self.serve(member)
                except BaseException:
                    self._logger.exception("thread %s failed and starts again", threading.current_thread().name)
        finally:
            member.gone.set()


def take_one(items: deque[Item]) -> Item | None:
    """Take the next run, if there is one; any thread may call this."""
    try:
        return items.popleft()
    except IndexError:
        return None


def take_back(items: deque[Item], older_than: int | None) -> list[Run]:
    """Take the runs that were added before the instant `older_than`, or all."""
    taken: list[Run] = []
    if not items:  # the usual case: the node calls this after every claim
        return taken
    while (item := take_one(items)) is not None:
        if older_than is not None and item[2] >= older_than:
            items.appendleft(item)
            break
        taken.append(item[0])
    return taken


def cancel_waiting(items: deque[Item], run_id: str, logger: logging.Logger) -> bool:
    """Report a run as cancelled if it waits among these; return False if it does not."""
    for item in items.copy():
        if item[0].id == run_id:
            try:
                items.remove(item)
            except ValueError:
                return False  # a thread was quicker
            tell(item[1], Report(item[0], Result.CANCELLED), logger)
            return True
    return False
