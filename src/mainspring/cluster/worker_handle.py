"""The sentinel's view of a worker process: what it has reported, and the claims that it would leave if it died now."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

from mainspring.cluster.messages import (
    AWAY,
    CLAIMED,
    CLAIMING,
    DRAINING,
    ENDED,
    LEAVE,
    PING,
    PONG,
    READY,
    STOP,
    STOP_RUNS,
    STUCK,
    SentinelChannel,
    read,
)
from mainspring.executors.processes.children import open_pidfd
from mainspring.executors.scoreboard import Scoreboard

__all__ = ["Claim", "WorkerHandle"]

STOPS_PER_MESSAGE: Final = 50
"""Name at most this many runs in one stop message: the pipe always has room for it."""


class Claim(NamedTuple):
    """A run that a worker says it has claimed."""

    token: str
    heard_at: float
    """When the sentinel read of the claim, by the monotonic clock."""


class WorkerHandle:
    """A worker process: its claims, its state, and the pipe to it."""

    def __init__(self, process: Any, pipe: Connection, board: Scoreboard) -> None:
        self.process, self.pipe, self.board = process, pipe, board
        self.pid: int = process.pid
        self.started_at, self.since = time.monotonic(), time.time()
        self.claims: dict[str, Claim] = {}
        """Its claims, by run id."""
        self.claiming: tuple[str, str, list[str]] | None = None
        """A claim or fire whose result it has not reported yet: node, token, lanes."""
        self.stuck: set[str] = set()
        """Runs that did not end at their time-out, or when they were stopped."""
        self.stuck_since: float | None = None
        self.draining: str | None = None
        self.empty_since: float | None = None
        """While draining: since when it has had no runs left."""
        self.asked_at: float | None = None
        """When the unanswered `ping` was sent."""
        self.ready = False
        self.away: str | None = None
        """The error with which it could not reach the store."""
        self.killed = False
        self.runs = 0
        self.leaving = False
        """Whether it has reported that a person asked the cluster to stop."""
        self._told_to_stop: dict[tuple[str, str], float] = {}
        """When the stop message for each claim was sent, by the monotonic clock."""
        self._wire = SentinelChannel(pipe)
        self._books = threading.Lock()
        self.deaf = False
        """Whether its end of the pipe is closed."""
        self._pidfd = open_pidfd(self.pid)

    @property
    def end(self) -> int:
        """A file that becomes readable when the process ends; its children may hold the sentinel open, no pidfd."""
        sentinel: int = self.process.sentinel
        return sentinel if self._pidfd is None else self._pidfd

    def hear(self) -> None:
        """Read and apply all messages of the worker."""
        try:
            while not self.deaf and self.pipe.poll(0):
                self._take(*read(self.pipe))
        except (EOFError, OSError):
            self.deaf = True

    def _take(self, word: str, what: Any) -> None:
        if word == CLAIMING:
            self.claiming = tuple(what)
            self.ready = True  # a task may hold the interpreter before it can say so
        elif word == CLAIMED:
            token, ids = what
            self.claiming = None
            with self._books:
                self.claims.update(dict.fromkeys(ids, Claim(token, time.monotonic())))
        elif word == ENDED:
            ids, executed = what
            self.runs += executed
            with self._books:
                for run_id in ids:
                    self.claims.pop(run_id, None)
        elif word == STUCK:
            self.stuck.add(what)
        elif word == DRAINING:
            self.draining = what
        elif word == READY:
            self.ready = True
        elif word == AWAY:
            self.away = what
        elif word == PONG:
            self.asked_at = None
        elif word == LEAVE:
            self.leaving = True

    def ask_to_stop(self, why: str) -> None:
        """Ask the worker to finish its started runs and end."""
        self._wire.send(STOP, why)

    def ping(self) -> None:
        """Ask the worker to answer, unless it already owes an answer."""
        if self.asked_at is None:
            self.asked_at = time.monotonic()
            self._wire.send(PING)

    def stop_runs(self, claims: list[tuple[str, str]]) -> None:
        """Ask the worker, once for each claim, to stop lost or cancelled runs; if its pipe is full, ask later."""
        fresh = [claim for claim in claims if claim not in self._told_to_stop]
        for start in range(0, len(fresh), STOPS_PER_MESSAGE):
            if not self._wire.all_said:
                return
            page = fresh[start : start + STOPS_PER_MESSAGE]
            self._told_to_stop.update(dict.fromkeys(page, time.monotonic()))
            self._wire.send(STOP_RUNS, page)

    def note_stuck(self, now: float, grace: float) -> None:
        """Record the runs that go on for longer than the grace after their time-out or our stop message.

        The worker itself reports a thread that it cannot interrupt, unless a task holds its interpreter.
        """
        claims = self.held()
        stopped = {
            run_id
            for (run_id, token), at in self._told_to_stop.items()
            if now > at + grace and run_id in claims and claims[run_id].token == token
        }
        for posted in self.board.read(claims):
            if now > posted.deadline + grace or (posted.run_id in stopped and not posted.ended):
                self.stuck.add(posted.run_id)

    def say_again(self) -> None:
        """Send the messages for which the pipe had no room before."""
        self._wire.say_again()

    def held(self) -> dict[str, Claim]:
        """Return a copy of its claims."""
        with self._books:
            return self.claims.copy()

    def give_up(self, claims: dict[str, Claim]) -> None:
        """Forget these claims, unless the worker has made new ones for the same runs."""
        with self._books:
            for run_id, claim in claims.items():
                if self.claims.get(run_id) is claim:
                    del self.claims[run_id]

    def overslept(self, since: float) -> dict[str, Claim]:
        """Return the claims from before `since` whose runs the worker has neither started nor given back.

        A healthy worker does one or the other within a second, so this process stands still. When it goes on, it will
        not start a run whose first lease is over.
        """
        old = {run_id: claim for run_id, claim in self.held().items() if claim.heard_at < since}
        try:
            for posted in self.board.read(old) if old else ():
                old.pop(posted.run_id, None)
        except ValueError:  # closed: the process has ended and its runs are being settled
            return {}
        return old

    def has_ended(self) -> bool:
        """Return True if the process has ended. Only the main thread may call this, since the first call reaps it."""
        return not self.process.is_alive()

    def kill(self) -> None:
        """Kill the process."""
        self.killed = True
        with suppress(ProcessLookupError, AttributeError):
            self.process.kill()

    def reap(self) -> int:
        """Wait for the process to end, read its last messages, and return its exit code."""
        self.process.join()
        self.hear()
        return int(self.process.exitcode)

    def close(self) -> None:
        """Close the pipe and the board."""
        self.pipe.close()
        self.board.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
