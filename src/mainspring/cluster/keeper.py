"""What the sentinel does with the store: renew the claims of living workers, settle those of dead ones."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final

from mainspring.cluster.wire import CLAIMED, DRAINING, ENDED, READY, STOP, STOP_RUNS, STUCK, Wire, read
from mainspring.errors import RunTimeout, WorkerDied
from mainspring.executors.board import Board
from mainspring.jobstores.base import Hold
from mainspring.outcome import conclude
from mainspring.run import Beat, Outcome, Report, Result, Run, Status, describe

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["Keeper", "Left"]

TRIES: Final = 3
PAGE: Final = 1000

log = logging.getLogger("mainspring.cluster")


class Left:
    """A worker process, and what it would leave behind if it died now."""

    def __init__(self, process: Any, pipe: Connection, board: Board, path: str) -> None:
        self.process, self.pipe, self.board = process, pipe, board
        self.pid: int = process.pid
        self.started_at, self.since = time.monotonic(), time.time()
        self.claims: dict[str, str] = {}
        """What it has claimed: run id -> token."""
        self.timed_out: set[str] = set()
        self.stuck_since: float | None = None
        self.draining: str | None = None
        self.ready = False
        self.killed = False
        self.runs = 0
        self._wire = Wire(pipe)
        self._path = path
        self._deaf = False

    def hear(self) -> None:
        """Take in all that the worker has said."""
        try:
            while not self._deaf and self.pipe.poll(0):
                self._take(*read(self.pipe))
        except (EOFError, OSError):
            self._deaf = True

    def _take(self, word: str, what: Any) -> None:
        if word == CLAIMED:
            token, ids = what
            self.claims.update(dict.fromkeys(ids, token))
        elif word == ENDED:
            self.runs += len(what)
            for run_id in what:
                self.claims.pop(run_id, None)
        elif word == STUCK:
            self.timed_out.add(what)
        elif word == DRAINING:
            self.draining = what
        elif word == READY:
            self.ready = True

    def ask_to_stop(self) -> None:
        """Tell it to finish what runs, and end."""
        self._wire.send(STOP)

    def stop_runs(self, run_ids: list[str]) -> None:
        """Tell it to stop runs that it lost, or that are to be cancelled."""
        self._wire.send(STOP_RUNS, run_ids)

    def has_ended(self) -> bool:
        """Tell whether the process is over."""
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
        return int(self.process.exitcode or 0)

    def close(self) -> None:
        """Let go of the pipe and the board."""
        self.pipe.close()
        self.board.close()
        with suppress(OSError):
            os.unlink(self._path)


class Keeper:
    """Renews, on a thread of its own, what living workers have claimed; settles what dead ones left."""

    def __init__(self, app: Mainspring, workers: Callable[[], list[Left]]) -> None:
        self._app, self._workers = app, workers
        self._lease = app.lease
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mainspring-renew", daemon=True)

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def close(self) -> None:
        """Stop renewing."""
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        down = False
        while not self._done.wait(self._lease / 3):
            try:
                self.renew()
                down = False
            except Exception as error:
                if not down:
                    log.error("the leases of the workers cannot be renewed; it is tried again", exc_info=error)
                down = True

    def renew(self) -> None:
        """Renew the claims of the workers that live; pass on which are lost or to be cancelled."""
        for left in self._workers():
            claims = list(left.claims.items())
            if not claims or left.killed or left.has_ended():
                continue
            stop: list[str] = []
            for start in range(0, len(claims), PAGE):
                page = claims[start : start + PAGE]
                answers = self._app.store.extend([Beat(run_id, token) for run_id, token in page], self._lease)
                stop += [run_id for (run_id, _), hold in zip(page, answers, strict=True) if hold is not Hold.HELD]
            stop = [run_id for run_id in stop if run_id in left.claims]
            if stop:
                left.stop_runs(stop)

    def settle(self, left: Left, code: int) -> None:
        """Settle what a worker left: what it executed is charged with its death, the rest is given back."""
        if not left.claims:
            return
        started = {posted.run_id for posted in left.board.read()}
        for attempt in range(TRIES):
            try:
                self._settle(left, started, code)
                return
            except Exception as error:
                log.warning("what process %s left cannot be settled: %s", left.pid, error)
                if attempt + 1 < TRIES and not self._done.wait(0.5):
                    continue
        log.error("%s runs of process %s are left to their leases", len(left.claims), left.pid)

    def _settle(self, left: Left, started: set[str], code: int) -> None:
        store, now = self._app.store, self._app.now()
        ids = list(left.claims)
        for start in range(0, len(ids), PAGE):
            page = ids[start : start + PAGE]
            held = [run for run in store.get_runs(page) if _is_held(run, left.claims)]
            store.settle([_outcome(run, left, run.id in started, code, now) for run in held if run is not None])


def _is_held(run: Run | None, claims: dict[str, str]) -> bool:
    return run is not None and run.status is Status.RUNNING and run.token == claims.get(run.id)


def _outcome(run: Run, left: Left, started: bool, code: int, now: int) -> Outcome:
    if run.id in left.timed_out:
        return conclude(_failed(run, RunTimeout(run.policy.timeout), now), now, 0.5)
    if not started:
        return conclude(Report(run, Result.UNSTARTED), now, 0.0)
    if left.killed or code == 0:
        # We ended it, or it left in good order: not the fault of what it executed.
        return conclude(Report(run, Result.INTERRUPTED), now, 0.0)
    return conclude(_failed(run, WorkerDied(left.pid, code), now), now, 0.5)


def _failed(run: Run, error: BaseException, now: int) -> Report:
    began = run.started_at or now
    return Report(run, Result.RAISED, None, error, describe(error, now, run.attempt), began, now)
