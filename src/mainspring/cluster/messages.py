"""The messages between a worker process and its sentinel, over a separate pipe for each worker."""

from __future__ import annotations

import select
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from multiprocessing.connection import Connection
from operator import attrgetter
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
    "LEAVE",
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
AWAY: Final = "away"  # an error: the worker ends because the store does not answer
CLAIMING: Final = "claiming"  # [node, token, queues]: sent before the worker asks the store
CLAIMED: Final = "claimed"  # [token, ids]: sent before the worker executes any of them
ENDED: Final = "ended"  # ids of runs that were settled or given back, and how many of them were executed
STUCK: Final = "stuck"  # id of a run that did not end when it was stopped
DRAINING: Final = "draining"  # a reason: the worker finishes its runs and ends
LEAVE: Final = "leave"  # a person has asked the cluster to stop, by an act in the store
PONG: Final = "pong"  # the worker's interpreter is free enough to answer
PING: Final = "ping"  # to the worker: answer
STOP: Final = "stop"  # to the worker, with a reason: finish the started runs, give back the rest, end
STOP_RUNS: Final = "stop runs"  # to the worker, [id, token] of each: these runs are lost or cancelled

NOTHING_LEFT: Final = "nothing is left to do"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def read(pipe: Connection) -> tuple[str, Any]:
    """Return the next message: its kind and its content."""
    word, what = _decode(pipe.recv_bytes())
    return word, what


class Channel:
    """One end of the pipe, which any thread may use."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self._lock = threading.Lock()

    def send(self, word: str, what: Any = None) -> None:
        """Send a message; drop it if the other side is gone."""
        try:
            with self._lock:
                self.pipe.send_bytes(_encode([word, what]))
        except OSError:
            pass  # the reading thread notices that the pipe is closed


class SentinelChannel(Channel):
    """The sentinel's end of the pipe. If a worker does not read, it keeps the message for later instead of waiting."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__(pipe)
        self._unsaid: deque[bytes] = deque()

    @property
    def all_said(self) -> bool:
        """Whether the pipe has taken all messages so far."""
        return not self._unsaid

    def send(self, word: str, what: Any = None) -> None:
        """Send a short message, now or later."""
        self._unsaid.append(_encode([word, what]))
        self.say_again()

    def say_again(self) -> None:
        """Send the messages kept for later, as far as the pipe has room."""
        try:
            with self._lock:
                while self._unsaid and _has_room(self.pipe):
                    self.pipe.send_bytes(self._unsaid.popleft())
        except OSError:
            self._unsaid.clear()  # the reading thread notices that the pipe is closed


def _has_room(pipe: Connection) -> bool:
    """Return True if the pipe takes a short message at once."""
    if sys.platform == "win32":
        return True
    poll = select.poll()
    poll.register(pipe.fileno(), select.POLLOUT)
    return bool(poll.poll(0))  # also True when the other end is gone: sending then fails


class WorkerChannel(Channel):
    """The worker's end of the pipe. It watches the node and reports the beginning and end of each claim."""

    def __init__(
        self,
        pipe: Connection,
        board: Scoreboard,
        steady_since: float | None = None,
        *,
        max_runs: int | None = None,
        stop: Callable[[str], None] = lambda why: None,
        began_at: float = 0.0,
    ) -> None:
        super().__init__(pipe)
        self.steady_since = steady_since
        self.began_at = began_at
        """When the sentinel started, by the monotonic clock."""
        self._board = board
        self._executed, self._max_runs = 0, max_runs
        self._stop = stop
        """Called with the reason when the process has executed `max_runs`."""

    @property
    def runs_left(self) -> int | None:
        """How many more runs this process may execute; None for any number."""
        return None if self._max_runs is None else self._max_runs - self._executed

    def stop_all(self) -> None:
        """Ask the sentinel to stop, with all its worker processes."""
        self.send(LEAVE)

    def claiming(self, node: str, token: str, queues: Sequence[str]) -> None:
        """Report a claim or fire before trying it.

        If we die before reporting its result, the sentinel asks the store for the runs that are leased under the token.
        """
        self.send(CLAIMING, [node, token, queues])

    def claimed(self, runs: Sequence[Run]) -> None:
        """Report claimed runs before any of them is executed."""
        # A claim has one token, but runs that are read again after an outage may have several.
        for token, some in groupby(runs, key=attrgetter("token")):
            self.send(CLAIMED, [str(token), [run.id for run in some]])

    def ended(self, run_ids: Sequence[str]) -> None:
        """Report runs whose claims are over, because the store has their outcome."""
        executed = sum(map(self._board.forget, run_ids))
        self._executed += executed
        self.send(ENDED, [run_ids, executed])
        if executed and self._max_runs is not None and self._executed >= self._max_runs:
            self._stop(f"it has executed {self._executed} runs")
