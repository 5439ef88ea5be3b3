"""A cursor that moves with every change, and threads that listen for changes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import ClassVar, Final

from mainspring.jobstores.base import JobStore
from mainspring.jobstores.split.records import JobRecords

__all__ = ["ChangeSignal", "StoreWatch", "WatchedRecords"]

PAUSE_SECONDS: Final = 1.0
"""Listen again after this many seconds when listening has failed or ended."""
JOIN_SECONDS: Final = 1.0
WATCH_SECONDS: Final = 5.0

Follow = Callable[[threading.Event], None]
Wait = Callable[[int, float], int]


class ChangeSignal:
    """One cursor for all changes that the followers report; the first `wait` starts a thread for each follower.

    A follower listens until its event is set, and calls `stir` for each change. If it returns or raises earlier, it is
    called again. After a fork, the child starts from scratch: it inherits neither threads nor locks.
    """

    def __init__(self, followers: Sequence[Follow] = ()) -> None:
        self._followers = followers
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._cursor = 1
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._pid = os.getpid()

    def stir(self, step: int = 1) -> None:
        """Wake the waiters; the step says whether only runs have changed (see `RUNS_STEP`)."""
        if self._pid != os.getpid():
            self._begin()
        with self._lock:
            self._cursor += step
            self._changed.notify_all()

    def wait(self, cursor: int, timeout: float) -> int:
        """Sleep until there is a change since `cursor`, or for `timeout` seconds; return the new cursor."""
        self.listen()
        with self._lock:
            self._changed.wait_for(lambda: self._cursor != cursor, timeout)
            return self._cursor

    def listen(self) -> None:
        """Start the threads of the followers, unless they run."""
        if self._pid != os.getpid():
            self._begin()
        with self._lock:
            if self._followers and (not self._threads or self._stopped.is_set()):
                self._listen()

    def stop(self) -> None:
        """Tell the threads to end; one that sleeps in a server ends when the server returns."""
        self._stopped.set()
        self.stir()

    def join(self) -> bool:
        """Wait briefly for the threads to end; return False if one still hangs in its server."""
        threads = [thread for thread in self._threads if thread is not threading.current_thread()]
        for thread in threads:
            thread.join(JOIN_SECONDS)
        return not any(thread.is_alive() for thread in threads)

    def _listen(self) -> None:
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep_following, args=(each, self._stopped), name="mainspring-split")
            for each in self._followers
        ]
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def _keep_following(self, follow: Follow, stopped: threading.Event) -> None:
        while not stopped.is_set():
            with suppress(Exception):  # the user of the store reports the error
                follow(stopped)
            self.stir()  # changes may have been missed meanwhile
            stopped.wait(PAUSE_SECONDS)


class WatchedRecords(JobRecords):
    """Records of a server that reports changes: override `follow`, or call `changes.stir` for each change."""

    watches: ClassVar[bool] = True

    def __init__(self) -> None:
        own = type(self).follow is not WatchedRecords.follow
        self.changes = ChangeSignal([self.follow] if own else [])

    def follow(self, stopped: threading.Event) -> None:
        """Listen to the server until the event is set, and call `changes.stir` for each change."""

    def wait(self, cursor: int, timeout: float) -> int:
        return self.changes.wait(cursor, timeout)

    def shutdown(self) -> None:
        """Stop listening; a store that has more to release does that first."""
        self.changes.stop()
        self.changes.join()


class StoreWatch(ChangeSignal):
    """One cursor for the changes of several stores; a thread per store listens from the first `wait` on."""

    def __init__(self, waits: Sequence[Wait], runs: JobStore | None = None) -> None:
        follows = [partial(self._follow, wait, False) for wait in waits]
        super().__init__(follows if runs is None else [partial(self._follow, runs.wait, runs.tells_topics), *follows])

    def _follow(self, wait: Wait, tells_topics: bool, stopped: threading.Event) -> None:
        cursor = wait(0, 0)
        self.stir()  # nobody knows what changed before
        while not stopped.is_set():
            seen = wait(cursor, WATCH_SECONDS)
            if seen != cursor:
                self.stir(seen - cursor if tells_topics and seen > cursor else 1)
                cursor = seen
