"""What a worker process and its sentinel say to each other, over a pipe of their own."""

from __future__ import annotations

import select
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

import msgspec

from mainspring.core.run import Run
from mainspring.executors.scoreboard import Scoreboard

__all__ = [
    "AWAY",
    "CLAIMED",
    "CLAIMING",
    "DRAINING",
    "ENDED",
    "NOTHING_LEFT",
    "PING",
    "PONG",
    "READY",
    "STOP",
    "STOP_RUNS",
    "STUCK",
    "Channel",
    "SentinelChannel",
    "WorkerChannel",
    "read",
]

READY: Final = "ready"  # the worker has started
AWAY: Final = "away"  # what is wrong: the worker ends, because the store does not answer
CLAIMING: Final = "claiming"  # [node, token, lanes]: before the store is asked
CLAIMED: Final = "claimed"  # [token, ids]: before anything of them is executed
ENDED: Final = "ended"  # ids, and how many of them were executed: settled, or given back
STUCK: Final = "stuck"  # id: it did not end when it was stopped
DRAINING: Final = "draining"  # why: the worker will end by itself
PONG: Final = "pong"  # the worker's interpreter is free enough to answer
PING: Final = "ping"  # to the worker: answer
STOP: Final = "stop"  # to the worker, why: finish what runs, give back the rest, end
STOP_RUNS: Final = "stop runs"  # to the worker, [id, token] of each: they are lost or to be cancelled

NOTHING_LEFT: Final = "nothing is left to do"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def read(pipe: Connection) -> tuple[str, Any]:
    """Return the next message and what it carries."""
    word, what = _decode(pipe.recv_bytes())
    return word, what


class Channel:
    """One end of the pipe, for any thread."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self._lock = threading.Lock()

    def send(self, word: str, what: Any = None) -> None:
        """Say something; whoever is gone does not hear it."""
        try:
            with self._lock:
                self.pipe.send_bytes(_encode([word, what]))
        except OSError:
            pass  # the end of the pipe is noticed where it is read


class SentinelChannel(Channel):
    """The sentinel's end: it never waits for a worker that does not read. What cannot be said now is kept for later."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__(pipe)
        self._unsaid: deque[bytes] = deque()

    @property
    def all_said(self) -> bool:
        """Whether the worker has read enough to be told more."""
        return not self._unsaid

    def send(self, word: str, what: Any = None) -> None:
        """Say something short, now or later."""
        self._unsaid.append(_encode([word, what]))
        self.say_again()

    def say_again(self) -> None:
        """Say what could not be said before, as far as the worker has made room for it."""
        try:
            with self._lock:
                while self._unsaid and _has_room(self.pipe):
                    self.pipe.send_bytes(self._unsaid.popleft())
        except OSError:
            self._unsaid.clear()  # the end of the pipe is noticed where it is read


def _has_room(pipe: Connection) -> bool:
    """Tell whether something short can be sent at once."""
    if sys.platform == "win32":
        return True
    poll = select.poll()
    poll.register(pipe.fileno(), select.POLLOUT)
    return bool(poll.poll(0))  # also when the other end is gone: sending tells


class WorkerChannel(Channel):
    """The worker's end: the watcher of its node, which tells the sentinel of every claim and of its end."""

    def __init__(
        self,
        pipe: Connection,
        board: Scoreboard,
        steady_since: float | None = None,
        *,
        max_runs: int | None = None,
        stop: Callable[[str], None] = lambda why: None,
    ) -> None:
        super().__init__(pipe)
        self.steady_since = steady_since
        self._board = board
        self._executed, self._max_runs = 0, max_runs
        self._stop = stop
        """Called with the reason when the process has executed `max_runs`."""

    @property
    def runs_left(self) -> int | None:
        """How many more runs this process may execute; None: any number."""
        return None if self._max_runs is None else self._max_runs - self._executed

    def claiming(self, node: str, token: str, lanes: Sequence[str]) -> None:
        """Tell of a claim before it is tried: should we die before we can tell what it brought, it is repeated."""
        self.send(CLAIMING, [node, token, lanes])

    def claimed(self, runs: Sequence[Run]) -> None:
        """Tell of claims, before anything of them is executed."""
        by_token: dict[str, list[str]] = {}
        for run in runs:
            by_token.setdefault(str(run.token), []).append(run.id)
        for token, ids in by_token.items():
            self.send(CLAIMED, [token, ids])

    def ended(self, run_ids: Sequence[str]) -> None:
        """Tell of claims that are over; the store knows their outcome."""
        executed = sum(map(self._board.forget, run_ids))
        self._executed += executed
        self.send(ENDED, [run_ids, executed])
        if executed and self._max_runs is not None and self._executed >= self._max_runs:
            self._stop(f"it has executed {self._executed} runs")
