"""What the sentinel does with the store: renew the claims of living workers, settle those of dead ones."""

from __future__ import annotations

import logging
import platform
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from mainspring.app.placement import Workplace
from mainspring.app.runs import ALIAS
from mainspring.cluster.worker_handle import Claim, WorkerHandle
from mainspring.core.run import Beat, Outcome, Report, Result, Run, Status, describe
from mainspring.core.transitions import conclude
from mainspring.errors import RunTimeout, StoreLocked, StoreUnavailable, WorkerDied
from mainspring.executors.current_run import CurrentRun, RunNotes
from mainspring.executors.execution import is_reported
from mainspring.executors.scoreboard import StartedRun
from mainspring.jobstores.base import Hold
from mainspring.node.settling import Settler

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["LeaseKeeper"]

SETTLE_TRIES: Final = 3
SETTLE_BATCH_RUNS: Final = 1000
CROWD_RUNS: Final = 20
"""When more runs than these die together, most of them are innocent, and to have each run alone would take long."""

log = logging.getLogger("mainspring.cluster")
reported_log = logging.getLogger("mainspring.cluster.reported")


class LeaseKeeper:
    """Renews, on a thread of its own, what living workers have claimed; settles what dead ones left."""

    def __init__(self, app: Mainspring, workers: Callable[[], list[WorkerHandle]]) -> None:
        self._app, self._workers = app, workers
        self._lease = app.lease
        self._place = Workplace(app)
        self.busy = threading.Lock()
        """Held while the store is used on the thread: a fork must not copy the store's locks while they are held."""
        self.locked_out = False
        """Whether somebody, perhaps a worker, keeps the store's lock."""
        self.steady_since: float | None = None
        """Since when the store has answered, by the monotonic clock, which new workers need not find out anew."""
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
        down, pause = False, 0.0
        while not self._done.wait(pause):
            try:
                with self.busy:
                    self._app.store.ping()  # opens it at first: while somebody keeps its lock, that would take long
                    self.renew()
                down = self.locked_out = False
                if self.steady_since is None:
                    self.steady_since = time.monotonic()
            except Exception as error:
                self.steady_since = None
                self.locked_out = isinstance(error, StoreLocked)
                if not down:
                    known = isinstance(error, StoreUnavailable)
                    log.error(
                        "the leases of the workers cannot be renewed; it is tried again: %s",
                        error,
                        exc_info=None if known else error,
                    )
                down = True
            pause = self._lease / 3

    def renew(self) -> None:
        """Renew the claims of the workers that live; pass on which are lost or to be cancelled.

        What a worker that stands still has not started is given back: others have time for it.
        """
        living = [left for left in self._workers() if not left.killed]
        for left in living:
            self._extend(left)
        # Its first lease is over for the worker, too: its idea of the store's time is a store's answer behind at most.
        since = time.monotonic() - self._lease * 4 / 3
        for left in living:
            overslept = left.overslept(since)
            if overslept:
                self._give_back(left, overslept)

    def _extend(self, left: WorkerHandle) -> None:
        claims = list(left.held().items())
        stop: list[tuple[str, str]] = []
        for start in range(0, len(claims), SETTLE_BATCH_RUNS):
            page = claims[start : start + SETTLE_BATCH_RUNS]
            answers = self._app.store.extend([Beat(run_id, claim.token) for run_id, claim in page], self._lease)
            for (run_id, claim), hold in zip(page, answers, strict=True):
                if hold is not Hold.HELD and left.claims.get(run_id) is claim:
                    stop.append((run_id, claim.token))
        left.stop_runs(stop)

    def _give_back(self, left: WorkerHandle, claims: dict[str, Claim]) -> None:
        """Give back runs that a worker has not started, if it still has them."""
        store, ids = self._app.store, list(claims)
        given: list[str] = []
        for start in range(0, len(ids), SETTLE_BATCH_RUNS):
            page = ids[start : start + SETTLE_BATCH_RUNS]
            runs = [run for run in store.get_runs(page) if run is not None and _is_held(run, claims)]
            # A thread may have been stopped between its look at the lease and its note on the board. It will start its
            # run in the end, which others may have executed by then: so not one that may start only once.
            unstarted = [run for run in runs if run.policy.delivery != "at_most_once"]
            self._write([_report(run, left, None, 0, self._app.now()) for run in unstarted])
            given += [run.id for run in unstarted]
        if given:
            left.give_up({run_id: claims[run_id] for run_id in given})
            log.warning("process %s stands still: %s runs that it has not started are given back", left.pid, len(given))

    def settle(self, left: WorkerHandle, code: int) -> None:
        """Settle what a worker left: what it executed is charged with its death, the rest is given back."""
        if left.claims or left.claiming:
            self._settle_patiently(left, code)
        try:  # it cannot sign off itself, and would be listed as running until its last beat is old
            for node in self._app.store.nodes():
                if (node.host, node.pid) == (platform.node(), left.pid):
                    self._app.store.leave(node.id)
        except Exception as error:
            log.info("process %s stays listed until its last beat is old: %s", left.pid, error)

    def _settle_patiently(self, left: WorkerHandle, code: int) -> None:
        board = {posted.run_id: posted for posted in left.board.read(left.claims)}
        for attempt in range(SETTLE_TRIES):
            try:
                self._settle(left, board, code)
                return
            except Exception as error:
                log.warning("what process %s left cannot be settled: %s", left.pid, error)
                if attempt + 1 < SETTLE_TRIES and not self._done.wait(0.5):
                    continue
        log.error("%s runs of process %s are left to their leases", len(left.claims), left.pid)

    def _settle(self, left: WorkerHandle, board: dict[str, StartedRun], code: int) -> None:
        store, now = self._app.store, self._app.now()
        if left.claiming is not None:
            node, token, lanes = left.claiming
            brought = store.claim(lanes, node=node, token=token, limit=1, lease=self._lease)
            left.claims.update((run.id, Claim(token, time.monotonic())) for run in brought.runs)
            left.claiming = None
        ids = list(left.claims)
        crowd = sum(not (posted.ended or posted.apart) for posted in board.values()) > CROWD_RUNS
        for start in range(0, len(ids), SETTLE_BATCH_RUNS):
            page = ids[start : start + SETTLE_BATCH_RUNS]
            found = [run for run in store.get_runs(page) if run is not None and _is_held(run, left.claims)]
            self._write([_report(run, left, board.get(run.id), code, now, crowd) for run in found])

    def _write(self, reports: list[Report]) -> None:
        store, now = self._app.store, self._app.now()
        settler = Settler(store)
        for report in reports:
            settler.add(report, self._conclude(report, now))
        while settler.unsettled:
            for report, outcome, accepted in settler.write(now):
                if accepted and report.exception is not None:
                    self._tell(report.run, report.exception)
                if accepted:
                    self._app.events.settled(outcome, ALIAS, report)

    def _tell(self, run: Run, error: BaseException) -> None:
        self._app.report(error, CurrentRun(run, _NoNotesSink()))
        logger = reported_log if is_reported(error) else log
        logger.error('run %s of "%s": %s', run.id, run.name, error)

    def _conclude(self, report: Report, now: int) -> Outcome:
        policy = report.run.policy
        try:
            # Only if it is needed: what crashes a process when it is imported must not crash this one.
            if isinstance(policy.backoff, str) and isinstance(report.exception, RunTimeout):
                policy = replace(policy, backoff=self._place.backoff(policy.backoff))
                report.run = replace(report.run, policy=policy)
            return conclude(report, now, 0.5)
        except Exception as error:  # a back-off function of the user's
            log.error("the back-off of run %r failed; the run is not retried", report.run.id, exc_info=error)
            return conclude(report, now, 0.5, retry=False)


class _NoNotesSink:
    """Takes the words of a run that says nothing any more."""

    def live(self, run: Run) -> RunNotes:
        """Return nothing said so far."""
        return RunNotes(run)

    def said(self, live: RunNotes) -> None:
        """Take no notice."""


def _is_held(run: Run, claims: dict[str, Claim]) -> bool:
    claim = claims.get(run.id)
    return claim is not None and run.status is Status.RUNNING and run.token == claim.token


def _report(
    run: Run, left: WorkerHandle, posted: StartedRun | None, code: int, now: int, crowd: bool = False
) -> Report:
    """Say how it went with a run that a process left behind; in a crowd, nobody is charged the first time."""
    if run.cancelling:
        began = 0 if posted is None else run.started_at or now
        return Report(run, Result.CANCELLED, started_at=began, finished_at=now)
    if run.id in left.stuck and run.policy.timeout is not None:
        return _failed(run, RunTimeout(run.policy.timeout), now)
    if posted is None:
        return Report(run, Result.UNSTARTED)
    if left.killed or posted.ended or posted.apart or (crowd and not run.interruptions):
        # We killed the process, or it died of something else, at least most probably: not the fault of this run.
        return Report(run, Result.INTERRUPTED)
    return _failed(run, WorkerDied(left.pid, code), now)


def _failed(run: Run, error: BaseException, now: int) -> Report:
    began = run.started_at or now
    return Report(run, Result.RAISED, None, error, describe(error, now, run.attempt), began, now)
