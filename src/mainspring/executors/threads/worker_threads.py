"""A crew: daemon threads that take runs from one shared deque."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from mainspring.core.run import Run
from mainspring.executors.execution import Item, give_back

__all__ = ["WorkerThread", "WorkerThreads", "take_back", "take_one", "take_run"]


class WorkerThread:
    """A thread of a crew; it sleeps on its bell."""

    def __init__(self) -> None:
        self.bell = threading.Lock()
        self.bell.acquire()
        self.gone = threading.Event()
        """Set when nobody needs to wait for this thread any more."""
        self.thread: threading.Thread | None = None


M = TypeVar("M", bound=WorkerThread)


class WorkerThreads(ABC, Generic[M]):
    """Up to `size` threads, started as they are needed.

    Wake-ups are a chain: who adds runs wakes one thread, and each thread that takes a run while more are left wakes
    the next. A thread that finds nothing to do says so in `idle` and looks again before it sleeps, so a run added in
    between is seen by the thread, or the thread by whoever adds it.
    """

    def __init__(self, size: int, name: str, logger: logging.Logger) -> None:
        self.items: deque[Item] = deque()
        self.idle: list[M] = []
        self.members: list[M] = []
        self.closed = False
        self.hiring = True
        """Whether there are fewer threads than there may be."""
        self._size, self._name, self._logger = size, name, logger
        self._lock = threading.Lock()

    @abstractmethod
    def member(self) -> M:
        """Make one more member."""

    @abstractmethod
    def serve(self, member: M) -> None:
        """Take runs and execute them until the crew is closed; called in the member's thread."""

    def put(self, items: Iterable[Item]) -> None:
        """Add runs to be executed, in order."""
        self.items.extend(items)
        self.wake()
        if self.closed:  # meanwhile: whoever closed it may not have seen these
            self.empty()

    def wake(self) -> None:
        """Wake one thread, or start one more."""
        try:
            self.idle.pop().bell.release()
        except IndexError:
            if self.hiring:
                self._hire()

    def park(self, member: M) -> None:
        """Sleep until there may be something to do."""
        self.idle.append(member)
        if self.items or self.closed:
            try:
                self.idle.remove(member)
                return
            except ValueError:
                pass  # somebody has taken us off the list and is about to ring
        member.bell.acquire()

    def empty(self) -> None:
        """Report all runs that have not started as such."""
        give_back(iter(lambda: take_one(self.items), None), self._logger)

    def close(self) -> None:
        """Start nothing more; threads end as soon as what they execute has."""
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
        """Wait until the threads have ended, but for the caller's own and those that are given up."""
        for member in self.members:
            if member.thread is not None and member.thread is not threading.current_thread():
                member.gone.wait()
                if not self.gave_up(member.thread):
                    member.thread.join()

    def gave_up(self, thread: threading.Thread) -> bool:
        """Tell whether a thread will not end."""
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
                # The system gives no more threads. What waits is for those there are, or will be withdrawn.
                self.members.remove(member)
                self.hiring = True
                self._logger.exception("cannot start thread %s of %s", name, self._size)

    def _live(self, member: M) -> None:
        try:
            while not self.closed:
                try:
                    self.serve(member)
                except BaseException:
                    self._logger.exception("thread %s had to begin anew", threading.current_thread().name)
        finally:
            member.gone.set()


def take_one(items: deque[Item]) -> Item | None:
    """Take the next run, if there is one; any thread may."""
    try:
        return items.popleft()
    except IndexError:
        return None


def take_back(items: deque[Item], older_than: int | None) -> list[Run]:
    """Take the runs that were added before the instant `older_than`, or all."""
    taken: list[Run] = []
    while (item := take_one(items)) is not None:
        if older_than is not None and item[2] >= older_than:
            items.appendleft(item)
            break
        taken.append(item[0])
    return taken


def take_run(items: deque[Item], run_id: str) -> Item | None:
    """Take the run of this id, if it is there."""
    for item in items.copy():
        if item[0].id == run_id:
            try:
                items.remove(item)
            except ValueError:
                return None  # a thread was quicker
            return item
    return None
