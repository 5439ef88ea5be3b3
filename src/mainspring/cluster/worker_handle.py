"""A worker process as its sentinel sees it: what it has said, and what it would leave behind if it died now."""

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
    PING,
    PONG,
    READY,
    STOP,
    STOP_RUNS,
    STUCK,
    SentinelChannel,
    read,
)
from mainspring.executors.scoreboard import Scoreboard

__all__ = ["Claim", "WorkerHandle"]

STOPS_PER_MESSAGE: Final = 50
"""Runs that a worker is told to stop at a time: few enough to be said without waiting."""


class Claim(NamedTuple):
    """A run that a worker says it has claimed."""

    token: str
    heard_at: float
    """By the monotonic clock."""


class WorkerHandle:
    """A worker process: what it has claimed and said, and the pipe to it."""

    def __init__(self, process: Any, pipe: Connection, board: Scoreboard) -> None:
        self.process, self.pipe, self.board = process, pipe, board
        self.pid: int = process.pid
        self.started_at, self.since = time.monotonic(), time.time()
        self.claims: dict[str, Claim] = {}
        """Its claims, by run id."""
        self.claiming: tuple[str, str, list[str]] | None = None
        """A claim that it has tried, and not told what it brought: node, token, lanes."""
        self.stuck: set[str] = set()
        """Runs that did not end at their time-out, or when they were to be stopped."""
        self.stuck_since: float | None = None
        self.draining: str | None = None
        self.empty_since: float | None = None
        """While draining: since when it has had nothing left to end."""
        self.asked_at: float | None = None
        """Since when it owes an answer to `ping`."""
        self.ready = False
        self.away: str | None = None
        """The error of the store that it could not reach."""
        self.killed = False
        self.runs = 0
        self._told_to_stop: dict[tuple[str, str], float] = {}
        """When it was told to stop each claim, by the monotonic clock."""
        self._wire = SentinelChannel(pipe)
        self._books = threading.Lock()
        self._deaf = False
        self._pidfd = _open_pidfd(self.pid)

    @property
    def end(self) -> int:
        """What becomes readable when the process ends. Its children may keep the sentinel open, but not a pidfd."""
        sentinel: int = self.process.sentinel
        return sentinel if self._pidfd is None else self._pidfd

    def hear(self) -> None:
        """Take in all that the worker has said."""
        try:
            while not self._deaf and self.pipe.poll(0):
                self._take(*read(self.pipe))
        except (EOFError, OSError):
            self._deaf = True

    @property
    def deaf(self) -> bool:
        """Whether nothing more will be heard from it."""
        return self._deaf

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

    def ask_to_stop(self, why: str) -> None:
        """Tell it to finish what runs, and end."""
        self._wire.send(STOP, why)

    def ping(self) -> None:
        """Ask whether it can answer, unless it has been asked."""
        if self.asked_at is None:
            self.asked_at = time.monotonic()
            self._wire.send(PING)

    def stop_runs(self, claims: list[tuple[str, str]]) -> None:
        """Tell it, once, to stop runs that it lost, or that are to be cancelled; if it does not read, next time."""
        fresh = [claim for claim in claims if claim not in self._told_to_stop]
        for start in range(0, len(fresh), STOPS_PER_MESSAGE):
            if not self._wire.all_said:
                return
            page = fresh[start : start + STOPS_PER_MESSAGE]
            self._told_to_stop.update(dict.fromkeys(page, time.monotonic()))
            self._wire.send(STOP_RUNS, page)

    def note_stuck(self, now: float, grace: float) -> None:
        """Note what goes on although for longer than the grace it should have ended, by its time-out or by our word.

        A thread that cannot be interrupted the worker reports itself, unless a task holds its interpreter.
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
        """Tell it what it could not be told before, because it did not read."""
        self._wire.say_again()

    def held(self) -> dict[str, Claim]:
        """Return a copy of its claims."""
        with self._books:
            return self.claims.copy()

    def give_up(self, claims: dict[str, Claim]) -> None:
        """Forget claims, unless it has made them anew."""
        with self._books:
            for run_id, claim in claims.items():
                if self.claims.get(run_id) is claim:
                    del self.claims[run_id]

    def overslept(self, since: float) -> dict[str, Claim]:
        """Return what it has claimed before `since` and not started: what it cannot start it gives back in a second.

        So it has stood still; and when it goes on, it starts nothing whose first lease is over.
        """
        old = {run_id: claim for run_id, claim in self.held().items() if claim.heard_at < since}
        try:
            for posted in self.board.read(old) if old else ():
                old.pop(posted.run_id, None)
        except ValueError:  # closed: it has ended, and what it left is being settled
            return {}
        return old

    def has_ended(self) -> bool:
        """Tell whether the process is over; for the main thread only, since who asks first reaps it."""
        return not self.process.is_alive()

    def kill(self) -> None:
        """Kill the process."""
        self.killed = True
        with suppress(ProcessLookupError, AttributeError):
            self.process.kill()

    def reap(self) -> int:
        """Wait for the process's end, hear its last words, and return its exit code."""
        self.process.join()
        self.hear()
        return int(self.process.exitcode)

    def close(self) -> None:
        """Let go of the pipe and the board."""
        self.pipe.close()
        self.board.close()
        if self._pidfd is not None:
            os.close(self._pidfd)


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
