"""The sentinel's work in the store: renew the claims of living workers, settle those of dead ones."""

from __future__ import annotations

import logging
import platform
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from mainspring.app.placement import Workplace
from mainspring.app.runs import ALIAS
from mainspring.cluster.worker_handle import Claim, WorkerHandle
from mainspring.core.run import Beat, Outcome, Report, Result, Run, Status, describe
from mainspring.core.transitions import conclude
from mainspring.errors import RunTimeout, StoreLocked, StoreUnavailable, WorkerDied
from mainspring.executors.current_run import CurrentRun, RunNotes
from mainspring.executors.scoreboard import StartedRun
from mainspring.jobstores.base import Hold
from mainspring.node.settling import Settler

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["LeaseKeeper"]

SETTLE_TRIES: Final = 3
SETTLE_BATCH_RUNS: Final = 1000
CROWD_RUNS: Final = 20
"""If more runs than this die together, charge none of them the first time: most are innocent, and it would take long
to execute each alone."""

log = logging.getLogger("mainspring.cluster")


class LeaseKeeper:
    """The keeper of a cluster's claims: a thread renews those of living workers, `settle` ends those of dead ones."""

    def __init__(self, app: Mainspring, workers: Callable[[], list[WorkerHandle]]) -> None:
        self._app, self._workers = app, workers
        self._lease = app.lease
        self._place = Workplace(app)
        self.busy = threading.Lock()
        """Held while the thread uses the store: a fork must not copy locks of the store while they are held."""
        self.locked_out = False
        """Whether another process, perhaps a worker, holds the store's lock."""
        self.steady_since: float | None = None
        """Since when the store has answered, by the monotonic clock; new workers get this time at their start."""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._begin, name="mainspring-renew", daemon=True)

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def close(self) -> None:
        """Stop renewing."""
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()

    def _begin(self) -> None:
        with self._app.store.on_thread():
            self._run()

    def _run(self) -> None:
        down, pause = False, 0.0
        while not self._done.wait(pause):
            try:
                with self.busy:
                    self._app.store.beat()  # the first call opens the store, which takes long while its lock is held
                    self.renew()
                    self._app.hand_over_sums()
                if down:
                    log.warning("the leases of the workers are renewed again")
                down = self.locked_out = False
                if self.steady_since is None:
                    self.steady_since = time.monotonic()
            except Exception as error:
                self.steady_since = None
                self.locked_out = isinstance(error, StoreLocked)
                if not down:
                    known = isinstance(error, StoreUnavailable)
                    log.error(
                        "cannot renew the leases of the workers, will try again: %s",
                        error,
                        exc_info=None if known else error,
                    )
                down = True
            pause = self._lease / 3

    def renew(self) -> None:
        """Renew the claims of living workers, and make them stop the runs that are lost or cancelled.

        If a worker stands still, give back the runs that it has not started, so that others can execute them.
        """
        living = [worker for worker in self._workers() if not worker.killed]
        for worker in living:
            self._extend(worker)
        # By then the first lease is over for the worker, too: its view of the store's time lags one answer at most.
        since = time.monotonic() - self._lease * 4 / 3
        for worker in living:
            overslept = worker.overslept(since)
            if overslept:
                self._give_back(worker, overslept)

    def _extend(self, worker: WorkerHandle) -> None:
        claims = list(worker.held().items())
        stop: list[tuple[str, str]] = []
        for start in range(0, len(claims), SETTLE_BATCH_RUNS):
            page = claims[start : start + SETTLE_BATCH_RUNS]
            answers = self._app.store.extend([Beat(run_id, claim.token) for run_id, claim in page], self._lease)
            for (run_id, claim), hold in zip(page, answers, strict=True):
                if hold is not Hold.HELD and worker.claims.get(run_id) is claim:
                    stop.append((run_id, claim.token))
        worker.stop_runs(stop)

    def _give_back(self, worker: WorkerHandle, claims: dict[str, Claim]) -> None:
        """Give back runs that a worker has not started, if it still has them."""
        store, ids = self._app.store, list(claims)
        given: list[str] = []
        for start in range(0, len(ids), SETTLE_BATCH_RUNS):
            page = ids[start : start + SETTLE_BATCH_RUNS]
            runs = [run for run in store.get_runs(page) if run is not None and _is_held(run, claims)]
            # A thread may stand still between its check of the lease and its entry on the board. When it goes on, it
            # starts its run, which others may have executed by then. So do not give back runs that may start only once.
            unstarted = [run for run in runs if run.policy.delivery != "at_most_once"]
            self._write([_report(run, worker, None, 0, self._app.now()) for run in unstarted])
            given += [run.id for run in unstarted]
        if given:
            worker.give_up({run_id: claims[run_id] for run_id in given})
            log.warning("process %s stands still; giving back %s runs that it has not started", worker.pid, len(given))

    def settle(self, worker: WorkerHandle, code: int) -> None:
        """Settle the runs of a dead worker: charge those that it executed with its death, and give back the others.

        A run that is not at fault, for example because we killed the process, counts as interrupted instead.
        """
        if worker.claims or worker.claiming:
            self._settle_patiently(worker, code)
        try:  # the dead process cannot sign off: without this, it stays listed until its last heartbeat is old
            for node in self._app.store.nodes():
                if (node.host, node.pid) == (platform.node(), worker.pid):
                    self._app.store.beat(node, ttl=0)
        except Exception as error:
            log.info("process %s stays listed until its last heartbeat is old: %s", worker.pid, error)

    def _settle_patiently(self, worker: WorkerHandle, code: int) -> None:
        board = {posted.run_id: posted for posted in worker.board.read(worker.claims)}
        for attempt in range(SETTLE_TRIES):
            try:
                self._settle(worker, board, code)
                return
            except Exception as error:
                log.warning("cannot settle the runs of process %s: %s", worker.pid, error)
                if attempt + 1 < SETTLE_TRIES and not self._done.wait(0.5):
                    continue
        log.error("%s runs of process %s will be recovered when their leases end", len(worker.claims), worker.pid)

    def _settle(self, worker: WorkerHandle, board: dict[str, StartedRun], code: int) -> None:
        store, now = self._app.store, self._app.now()
        if worker.claiming is not None:
            node, token, queues = worker.claiming
            brought = store.claim([(queues, 0)], node=node, token=token, lease=self._lease)
            worker.claims.update((run.id, Claim(token, time.monotonic())) for run in brought.runs)
            worker.claiming = None
        ids = list(worker.claims)
        crowd = sum(not (posted.ended or posted.apart) for posted in board.values()) > CROWD_RUNS
        for start in range(0, len(ids), SETTLE_BATCH_RUNS):
            page = ids[start : start + SETTLE_BATCH_RUNS]
            found = [run for run in store.get_runs(page) if run is not None and _is_held(run, worker.claims)]
            self._write([_report(run, worker, board.get(run.id), code, now, crowd) for run in found])

    def _write(self, reports: list[Report]) -> None:
        store, now = self._app.store, self._app.now()
        settler = Settler(store)
        for report in reports:
            settler.add(report, self._conclude(report, now), now)
        for settled in settler.settle(now):
            self._app.events.sums(ALIAS).settled([settled], now)
            report, outcome, accepted = settled
            if accepted and report.exception is not None:
                self._app.report(report.exception, CurrentRun(report.run, _NoNotesSink()))
            if accepted:
                self._app.events.settled(outcome, ALIAS, report)

    def _conclude(self, report: Report, now: int) -> Outcome:
        policy = report.run.policy
        try:
            # Import it only if needed: a module that crashes a process on import must not crash this one.
            if isinstance(policy.backoff, str) and isinstance(report.exception, RunTimeout):
                policy = replace(policy, backoff=self._place.backoff(policy.backoff))
                report.run = replace(report.run, policy=policy)
            return conclude(report, now, 0.5)
        except Exception as error:  # a back-off function of the user's
            log.error("the back-off of run %r failed; the run is not retried", report.run.id, exc_info=error)
            return conclude(report, now, 0.5, retry=False)


class _NoNotesSink:
    """A sink for a run that no longer reports anything."""

    def notes_of(self, run: Run) -> RunNotes:
        """Return empty notes."""
        return RunNotes(run)

    def notes_changed(self, notes: RunNotes) -> None:
        """Do nothing."""

    def inputs(self, run: Run) -> list[Any]:
        """Return nothing: the run is over."""
        return []


def _is_held(run: Run, claims: dict[str, Claim]) -> bool:
    claim = claims.get(run.id)
    return claim is not None and run.status is Status.RUNNING and run.token == claim.token


def _report(
    run: Run, worker: WorkerHandle, posted: StartedRun | None, code: int, now: int, crowd: bool = False
) -> Report:
    """Make the report of a run of a dead process; if many runs died together, charge none of them the first time."""
    if run.cancelling:
        began = 0 if posted is None else run.started_at or now
        return Report(run, Result.CANCELLED, started_at=began, finished_at=now)
    if run.id in worker.stuck and run.policy.timeout is not None:
        return _failed(run, RunTimeout(run.policy.timeout), now)
    if posted is None:
        return Report(run, Result.UNSTARTED)
    if worker.killed or posted.ended or posted.apart or (crowd and not run.interruptions):
        # This run is not, or probably not, at fault: we killed the process, the run had ended, or many died together.
        return Report(run, Result.INTERRUPTED)
    return _failed(run, WorkerDied(worker.pid, code), now)


def _failed(run: Run, error: BaseException, now: int) -> Report:
    began = run.started_at or now
    return Report(run, Result.RAISED, None, error, describe(error, now, run.attempt), began, now)
