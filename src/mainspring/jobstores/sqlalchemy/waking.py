"""Sleep until something changes; wake the sleepers of this process at once, and those of others by messages.

A database has a waker for each topic of `JobStore.wait`. A writer calls `stir`: it moves the cursor, which wakes the
sleepers of this process (`move`), and sends a message to the other processes (`tell`). Their sleepers read it
(`receive`), or poll (`look`), and move their own cursors. The step by which a cursor moves says what has changed (see
`RUNS_STEP`). Steps add up, and a message that does not say its step counts as one.

Ends of runs cost nothing extra while no process waits for one. A waiting process announces itself: in SQLite by its
socket beside the file, on a server by a mark in `meta`. The mark holds for ten seconds, and `settle` reads it in a
statement that it needs anyway.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from mainspring.clock import Bell
from mainspring.core.instants import SECOND
from mainspring.jobstores.sqlalchemy.transaction import Tx

if TYPE_CHECKING:
    from mainspring.jobstores.sqlalchemy.database import Database

__all__ = ["AWAITED", "RUNS_WORD", "AwaitedMark", "Waker", "readable"]

MARK_SECONDS: Final = 10.0
"""After a process sets the mark, announce ends of runs for this many seconds."""
RUNS_WORD: Final = "runs"
"""The word that marks a notification of a change that concerns only runs."""
RENEW_SECONDS: Final = 5.0
GOOD_MARK_SECONDS: Final = 7.5
"""Leave the mark as it is while it holds for more than this many seconds, whichever process has set it."""
MESSENGER_SECONDS: Final = 2.0
"""The thread that sends held-back messages ends after this many seconds without one."""
AWAITED: Final = "(SELECT value FROM {meta} WHERE name = 'awaited')"
"""The mark: the time until which some process waits for ends of runs."""

log = logging.getLogger("mainspring.jobstores.sqlalchemy")


def readable(sources: list[int], timeout: float) -> list[int]:
    """Return the descriptors that can be read within `timeout` seconds."""
    if not hasattr(select, "poll"):  # Windows
        return select.select(sources, [], [], timeout)[0]
    poll = select.poll()
    for source in sources:
        poll.register(source, select.POLLIN)
    return [source for source, _ in poll.poll(timeout * 1000)]


class Waker(ABC):
    """A cursor that moves when something changes. One sleeping thread listens for messages of other processes."""

    pause: float = 0.0
    """Send messages to the other processes at most this often, in seconds."""
    look_every: float | None = None
    """Poll this often, in seconds, for changes without a message."""

    def __init__(self) -> None:
        self.cursor = 1
        # Enter the lock, not the condition: an interrupt in the condition's Python code would leave it locked for ever.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._listening = threading.Lock()
        self._own_end, self._far_end = socket.socketpair()
        self._own_end.setblocking(False)
        self._far_end.setblocking(False)
        self._last_told = 0.0
        self._held_back = 0
        self._messenger: threading.Thread | None = None
        self._bell = Bell()
        self._closed = False

    def stir(self, step: int = 1) -> None:
        """Wake the sleepers of this process, and message the other processes."""
        self.move(step)
        if not self.pause:
            self._tell_safely(step)
            return
        with self._lock:
            now = time.monotonic()
            if now < self._last_told + self.pause:
                # Send a held-back message when the pause is over; otherwise a process would sleep through it.
                if not self._closed:
                    if not self._held_back:
                        self._call_messenger()
                    self._held_back += step
                return
            self._last_told = now
        self._tell_safely(step)

    def _call_messenger(self) -> None:
        if self._messenger is None:
            self._messenger = threading.Thread(target=self._send_late, name="mainspring-messenger", daemon=True)
            self._messenger.start()
        self._bell.set()

    def move(self, step: int = 1) -> None:
        """Wake the sleepers of this process."""
        with self._lock:
            self.cursor += step
            self._changed.notify_all()
        if self._listening.locked():  # otherwise the next listener looks at the cursor first
            with contextlib.suppress(OSError):  # the pipe is full, so the listener is awake anyway
                self._far_end.send(b".")

    def wait(self, cursor: int, timeout: float) -> int:
        """Sleep until the cursor has moved or the time is over."""
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            if self._listening.acquire(blocking=False):
                try:
                    if not self._closed:  # a connection opened after the close would stay open
                        self.prepare()
                    if self.cursor == cursor and not self._closed:
                        self._listen(cursor, max(0.0, left))
                finally:
                    self._listening.release()
                with self._lock:
                    self._changed.notify_all()  # let another sleeper listen
            else:
                with self._lock:
                    self._changed.wait_for(lambda: self.cursor != cursor, max(0.0, min(left, 0.5)))
            if self.cursor != cursor or self._closed or time.monotonic() >= deadline:
                return self.cursor

    def _listen(self, cursor: int, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while self.cursor == cursor and not self._closed:
            left = deadline - time.monotonic()
            pause = left if self.look_every is None else min(left, self.look_every)
            fileno = self.fileno()
            own = self._own_end.fileno()
            ready = readable([own] if fileno is None else [own, fileno], max(0.0, pause))
            if own in ready:
                with contextlib.suppress(OSError):
                    while self._own_end.recv(4096):
                        pass
            step = 0
            if fileno in ready:
                step = self.receive()
            elif not ready and left > 0 and self.look_every is not None:
                step = self.look()
            if step:
                self.move(step)
            if left <= 0:
                return

    def _send_late(self) -> None:
        """Send held-back messages, each when its pause is over; end when there was none for a while."""
        while True:
            if not self._closed:
                self._bell.wait(MESSENGER_SECONDS)
            with self._lock:
                if not self._held_back:
                    self._messenger = None
                    return
                wait = self._last_told + self.pause - time.monotonic()
            if wait > 0 and not self._closed:
                time.sleep(wait)
            with self._lock:
                step, self._held_back, self._last_told = self._held_back, 0, time.monotonic()
            self._tell_safely(step)

    def _tell_safely(self, step: int) -> None:
        try:
            self.tell(step)
        except Exception as error:  # only a hint: a process that is not woken polls within seconds
            log.debug("the other nodes could not be woken for a change: %s", error)

    def close(self) -> None:
        """Wake every sleeper, and send the message that was still held back."""
        with self._lock:
            messenger, self._closed = self._messenger, True
        if messenger is not None:
            self._bell.set()
            messenger.join()
        self.move()
        with self._listening:
            self.end()
            self._own_end.close()
            self._far_end.close()

    def rest(self) -> None:
        """Stop listening until the next wait, which returns at once if it may have missed messages."""
        if self._listening.acquire(blocking=False):
            try:
                self.deafen()
            finally:
                self._listening.release()

    def prepare(self) -> None:  # noqa: B027
        """Begin to listen, unless that was done already."""

    def deafen(self) -> None:
        """Stop listening, but keep sending messages to other processes."""
        self.end()

    def end(self) -> None:  # noqa: B027
        """Stop listening."""

    def fileno(self) -> int | None:
        """Return the descriptor that becomes readable when another process sends a message."""
        return None

    def receive(self) -> int:
        """Read the messages of other processes; return the sum of their steps, 0 if none concerns this process."""
        return 0

    def look(self) -> int:
        """Check for changes without a message; return the step, 0 if there are none."""
        return 0

    @abstractmethod
    def tell(self, step: int) -> None:
        """Send the other processes a message that something has changed."""


class AwaitedMark:
    """The mark by which this process says that it waits for the end of a run."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._renew_at = self._lapses_at = 0.0

    def renew(self) -> bool:
        """Renew the mark if it is time to; return True if it may have lapsed, so that ends went unannounced."""
        now = time.monotonic()
        if now < self._renew_at:
            return False
        lapsed = now >= self._lapses_at
        self._database.write(_mark)
        self._renew_at, self._lapses_at = now + RENEW_SECONDS, now + GOOD_MARK_SECONDS
        return lapsed


def _mark(tx: Tx) -> None:
    # Write only if the mark lapses soon: then a thousand waiting processes write hardly more often than one.
    soon, until = tx.now + int(GOOD_MARK_SECONDS * SECOND), tx.now + int(MARK_SECONDS * SECOND)
    tx.run("UPDATE {meta} SET value = ? WHERE name = 'awaited' AND value <= ?", until, soon)
