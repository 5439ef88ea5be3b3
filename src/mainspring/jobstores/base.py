"""The store contract: jobs, runs and service. A store has no policy: it writes records atomically and finds them again.

Instants are microseconds UTC (`int`) by the store's own clock. Every hot method takes a batch and costs one
round trip. A back end subclasses `JobStore` and passes `mainspring.testing.conformance`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from mainspring.clock import Clock
from mainspring.core.insight.acts import Act
from mainspring.core.insight.metrics import Tally
from mainspring.core.instants import from_us, to_us
from mainspring.core.job import Job
from mainspring.core.lanes import Want
from mainspring.core.plan import Firing
from mainspring.core.run import Beat, Outcome, Run
from mainspring.errors import ConfigurationError, ConflictingIdError, JobLookupError, TransientJobError, VersionConflict
from mainspring.jobstores.health import Health
from mainspring.jobstores.values import (
    Answers,
    BrokenJob,
    ClaimedRuns,
    DuePage,
    Generation,
    Hold,
    JobList,
    NodeInfo,
    QueueInfo,
    RunQuery,
    RunStanding,
    Stats,
)

CHANGES: Final = "changes"
ENDS: Final = "ends"
"""The topics of `wait`: changes that may concern a loop, and ends of runs."""
PackLike = Callable[[str, Sequence[Any], Mapping[str, Any], int], Any]
"""A function that packs a run with this id and these arguments, made and due at this instant."""
RUNS_STEP: Final = 4096
"""A store that `tells_topics` moves the cursor of CHANGES by a multiple of this if a change concerns only runs."""
_SUGGEST_FROM_JOBS = 1000
"""Suggest similar ids for an unknown job only if the store has at most this many jobs."""

log = logging.getLogger("mainspring.jobstores")

__all__ = [
    "CHANGES",
    "ENDS",
    "RUNS_STEP",
    "Answers",
    "BaseJobStore",
    "BrokenJob",
    "ClaimedRuns",
    "ConflictingIdError",
    "DuePage",
    "Generation",
    "Health",
    "Hold",
    "JobList",
    "JobLookupError",
    "JobStore",
    "NodeInfo",
    "PackLike",
    "QueueInfo",
    "RunQuery",
    "RunStanding",
    "Stats",
    "TransientJobError",
    "VersionConflict",
    "Want",
    "unknown_job",
]


def unknown_job(store: JobStore, job_id: str) -> JobLookupError:
    """Return the error for an unknown job id, with similar ids if there are few enough jobs to read."""
    few = store.stats().jobs <= _SUGGEST_FROM_JOBS
    return JobLookupError(job_id, tuple(job.id for job in store.get_jobs().jobs) if few else ())


class BaseJobStore(ABC):
    """APScheduler's eight methods, which a user's own job store must have."""

    _scheduler: Any = None
    _alias: str | None = None

    def start(self, scheduler: Any, alias: str) -> None:
        """Open connections; called when the scheduler starts, or when the store is added to a running one."""
        self._scheduler = scheduler
        self._alias = alias
        self._logger = logging.getLogger("mainspring.jobstores." + str(alias))

    def shutdown(self) -> None:  # noqa: B027 - a store may have nothing to release
        """Release the connections that `start` opened."""

    @abstractmethod
    def lookup_job(self, job_id: str) -> Job | None:
        """Return a job, or None."""

    @abstractmethod
    def get_due_jobs(self, now: datetime) -> list[Job]:
        """Return the jobs due by `now`, earliest first."""

    @abstractmethod
    def get_next_run_time(self) -> datetime | None:
        """Return the earliest next run time of all jobs, or None."""

    @abstractmethod
    def get_all_jobs(self) -> list[Job]:
        """Return all jobs by next run time, paused ones last."""

    @abstractmethod
    def add_job(self, job: Job) -> None:
        """Add a job; raise ConflictingIdError if its id is taken."""

    @abstractmethod
    def update_job(self, job: Job) -> None:
        """Replace a job; raise JobLookupError if it does not exist."""

    @abstractmethod
    def remove_job(self, job_id: str) -> None:
        """Remove a job; raise JobLookupError if it does not exist."""

    @abstractmethod
    def remove_all_jobs(self) -> None:
        """Remove all jobs."""

    def _fix_paused_jobs_sorting(self, jobs: list[Job]) -> None:
        """Move the paused jobs of a sorted list to its end."""
        jobs.sort(key=lambda job: job.next_run_time is None)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class JobStore(BaseJobStore):
    """The store contract: jobs, runs and service."""

    volatile: ClassVar[bool] = False
    """True if no record outlives the process: a stopping node then finishes pending runs instead of leaving them."""
    keeps_objects: ClassVar[bool] = False
    """True if the store keeps callables and arguments as objects, so lambdas and bound methods work."""
    on_set_aside: Callable[[str, str, str | None, str], None] | None = None
    """A function to call after setting a record aside, with "job" or "run", the id, the queue and the reason."""
    remote: bool = False
    """True if a write waits for a server: a caller with many writes can work while it waits."""
    tells_topics: bool = False
    """True if the cursor of CHANGES says whether jobs may have changed: see `RUNS_STEP`."""
    _dropped_history: bool = False

    # -- APScheduler's verbs, built on the contract --------------------------------------------------------------

    def lookup_job(self, job_id: str) -> Job | None:
        """Return a job, or None."""
        found = self.get_jobs([job_id]).jobs
        return found[0] if found else None

    def get_due_jobs(self, now: datetime) -> list[Job]:
        """Return the jobs due by `now`, earliest first."""
        until = to_us(now)
        return [job for job in self.get_jobs().jobs if job.at is not None and job.at <= until]

    def get_next_run_time(self) -> datetime | None:
        """Return the earliest next run time of all jobs, or None."""
        at = self.due(0, 0).next_at
        return None if at is None else from_us(at)

    def get_all_jobs(self) -> list[Job]:
        """Return all jobs by next run time, paused ones last."""
        return self.get_jobs().jobs

    def add_job(self, job: Job) -> None:
        """Add a job; raise ConflictingIdError if its id is taken."""
        self.add_jobs([job])

    def remove_job(self, job_id: str) -> None:
        """Remove a job; raise JobLookupError if it does not exist."""
        if not self.remove_jobs([job_id]):
            raise unknown_job(self, job_id)

    def remove_all_jobs(self) -> None:
        """Remove all jobs."""
        self.remove_jobs()

    # -- jobs --------------------------------------------------------------------------------------------------

    @abstractmethod
    def add_jobs(self, jobs: Sequence[Job], *, replace: bool = False) -> None:
        """Add jobs, all or none, and set `version` and `incarnation` on each.

        A taken id raises ConflictingIdError; with `replace`, the new job replaces the old one and keeps its
        incarnation. Each write of a job makes a new version. A version is never used again, not even after remove and
        add.
        """

    @abstractmethod
    def update_job(self, job: Job) -> None:
        """Replace the stored job if its version is still `job.version`, and set the new version on `job`.

        A new job object, with version 0, replaces the stored job with its id, as in APScheduler. Raise JobLookupError
        if there is none, or VersionConflict if the job was changed meanwhile. The unfinished runs, the incarnation and
        the open missed record of the job stay as they are.
        """

    @abstractmethod
    def remove_jobs(self, job_ids: Sequence[str] | None = None, *, broken: bool = False) -> int:
        """Remove the jobs with these ids (None: all), or with `broken` those that were set aside; return how many."""

    @abstractmethod
    def get_jobs(self, job_ids: Sequence[str] | None = None, *, broken: bool = False) -> JobList:
        """Return the jobs with these ids (None: all) by next run time, paused last; with `broken`, those set aside."""

    @abstractmethod
    def set_aside(self, job_id: str, version: int, reason: str | None) -> bool:
        """Set aside a job of this version that cannot be restored; keep its bytes and the reason.

        If `reason` is None, put back the job with this id that was set aside last, whatever its version. Raise
        ConflictingIdError if another job has the id by now. Return False if there is no such job.
        """

    @abstractmethod
    def due(self, limit: int, hold: float) -> DuePage:
        """Return up to `limit` due jobs, earliest first, and hide them from other callers for `hold` seconds.

        Hiding only saves other schedulers useless planning; it is not a lock. Any write of a job makes it visible
        again. `due(0, 0)` returns the time when the earliest job of all is due, hidden or not.
        """

    @abstractmethod
    def fire(self, firings: Sequence[Firing], lease: float) -> Answers[tuple[str, ...] | None]:
        """Take each step if its job's version is unchanged and its time has come; return the ids of the inserted runs.

        None in the answer means that another process was first, or that the job is not due: the step changed nothing.
        Each step is atomic: it writes the next run time (None removes the job), a new version, the open missed record,
        missed records (replaced by id) and runs. It does not insert a run whose id is known; the id of a deleted run
        stays known for an hour. A run that is already claimed in the step is leased for `lease` seconds. In a queue
        that is paused or limited, it is inserted as `unclaimed` instead, and its id is in `Answers.waiting`; a store
        may do so in any queue but that of a local executor. For an `unscheduled` step, the job need not be due, and a
        job without a next run time is paused, not removed. A `job` in the step replaces the stored one, as `update_job`
        does.
        """

    # -- runs --------------------------------------------------------------------------------------------------

    # An edge leads from a run to its successor (`Run.after`). A run that waits for predecessors is blocked; `waits` is
    # the number of them that have not ended. The call that ends a run judges its edges in the same step, after it has
    # written all statuses of the call. An end in the mask of an edge lowers the successor's `waits` by one. At zero the
    # successor is released: it becomes pending. A `run_at` in the future stays; a negative `run_at` is a delay in
    # microseconds that counts from the release. Any other end refuses the successor: it becomes pending, due at once
    # and outside its gate, and `refused` is the id of the run that ended. The node that claims it cancels it. A refusal
    # beats a release. An edge stays until one of its runs is deleted or its predecessor is sent back.

    @abstractmethod
    def add_runs(self, runs: Sequence[Run]) -> Answers[str | None]:
        """Add waiting runs; return the id of each, or of the unfinished run that holds its unique key.

        A run with a known id changes nothing, and its predecessors are ignored. A predecessor is an earlier run of this
        call, or a run in the store. An unfinished predecessor cannot end before the edge is stored; an ended one counts
        by its status. If a predecessor does not exist, the run is not stored (None). Nor is a run of this call that
        comes after a run that was not stored, for this reason or because its unique key is taken. A run has at most
        1,000 predecessors and 1,000 successors; one more raises ValueError. A run may be packed: see `pack_run`.
        """

    @abstractmethod
    def claim(self, wants: Sequence[Want], *, node: str, token: str, lease: float) -> ClaimedRuns:
        """Lease due runs to `node`: for each want, up to its limit of its lanes (see `core.lanes`), in this order.

        Within a want, higher priority goes first, then earlier run time. One want uses nothing of another's limit. Each
        run becomes running: `attempt` rises by one, `token` is set, and `started_at` is the store's now. The returned
        runs have `followed` and `refused` set. The claim frees a unique key that begins with `>`. A repeated call with
        the same token returns the runs still held under it instead of claiming more, also with a limit of 0. A paused
        queue gives no runs from any of its lanes. `next_at` is the earliest time over all wants.
        """

    @abstractmethod
    def extend(self, beats: Sequence[Beat], lease: float) -> list[Hold]:
        """Renew the lease of each claim that is still held, store its reports, and return its `Hold`."""

    @abstractmethod
    def settle(self, outcomes: Sequence[Outcome]) -> Answers[bool]:
        """Write each outcome whose condition holds for the stored run, with its `then`; return which were written.

        Do not write a running run as pending if it is marked to be stopped, because the caller of `cancel` expects its
        end. Nor do so if it needs a unique key that another unfinished run has by now. Add the runs in `then` as
        `add_runs` does. A run that ends releases or refuses its successors. For a held run that has succeeded, a store
        need not write the fields that its holder does not change: queue, priority, time, attempt and policy. An ended
        run that is sent back loses the edges to and from it. A run that is written as blocked is judged again by its
        `after`, as in `add_runs`, except that a missing predecessor counts as satisfied. The store, not the outcome,
        keeps `waits`, `followed`, and (except for a run that is sent back) `refused`. An outcome may be packed: see
        `pack_outcome`.
        """

    @abstractmethod
    def get_runs(self, run_ids: Sequence[str]) -> list[Run | None]:
        """Return the run with each of these ids, or None."""

    @abstractmethod
    def find_runs(self, query: RunQuery, *, after: Run | None = None, limit: int = 100) -> list[Run]:
        """Return matching runs, newest first; `after` is the last run of the previous page.

        A query for `lapsed` runs, by the store's clock, has no other fields, and its runs come in any order.
        """

    @abstractmethod
    def cancel(self, run_ids: Sequence[str]) -> list[bool]:
        """Mark running runs to be stopped; return which were marked.

        The holder of a run learns of the mark from `extend`, or when it tries to give the run back.
        """

    @abstractmethod
    def delete_runs(self, run_ids: Sequence[str]) -> int:
        """Delete finished runs and the edges to and from them; return how many."""

    @abstractmethod
    def prune(self, limit: int = 1000) -> int:
        """Delete up to `limit` finished runs that are past their retention by age or count; broken ones are kept.

        Keep a run while one of its successors is unfinished; if the edge has the flag `HOLDS`, keep it while the
        successor exists at all. Look at such a run again an hour later.
        """

    # -- service -------------------------------------------------------------------------------------------------

    @abstractmethod
    def beat(self, node: NodeInfo | None = None, ttl: float = 0.0) -> int:
        """Announce a node and return the store's now; forget the node after `ttl` silent seconds (0: at once).

        Without a node, only return the time, which also shows that the store answers.
        """

    @abstractmethod
    def nodes(self) -> list[NodeInfo]:
        """Return the living nodes."""

    # A run may name a gate and carry its limit (`gate`, `gate_spec`). `claim` judges it by `core.waiting.gates.judge`,
    # with the number of running runs of the gate. A run without a slot is parked: it becomes blocked with no `waits`.
    # When a run of the gate stops running, ends without having run, or leaves the gate, the most urgent parked run of
    # each lane becomes pending again, due now: higher priority first, then older. The store does this for each lane, so
    # that an unserved lane does not block the others. A postponed parked run becomes pending: the claim judges it when
    # it is due. A refused run needs no slot. Each run is judged once per turn, and a full gate hides no run behind it.
    # The gate `queue:<name>` counts the running runs in all lanes of a queue; runs above its number wait.

    @abstractmethod
    def set_gate(self, name: str, allowed: int | None) -> None:
        """Let at most `allowed` runs of a gate run at once, in place of the runs' own limit; None restores their limit.

        `queue:mail` is the gate of the queue `mail`: 0 or less pauses the queue. A higher number lets in as many parked
        runs as fit; a lower one stops no running run. A store forgets a gate without a number that no run needs.
        """

    @abstractmethod
    def stats(self, query: RunQuery | None = None) -> Stats:
        """Return the queues that hold unfinished runs or are paused, the totals, the number of jobs, the limits set.

        With a query, return only how many runs match it. If the query has a `cap`, any number above the cap will do. A
        store without an index for the query may then look only at the newest runs, and mark the answer as incomplete.
        """

    @abstractmethod
    def wait(self, cursor: int, timeout: float, topic: str = CHANGES) -> int:
        """Sleep until there is a change since `cursor` that may concern a loop, or for `timeout` seconds.

        Return the new cursor; start with 0. A call does not miss changes made since the last one. With the topic
        `ENDS`, sleep until a run has ended. This is only a hint, and may be lost. Listening for ends may cost something
        even while nobody waits, so a call with a timeout of 0 stops it. Each topic has its own cursor.
        """

    # -- optional: history -------------------------------------------------------------------------------------------

    @property
    def keeps_history(self) -> bool:
        """Whether the store overrides `acts` and `tallies`; without them it has no audit, no charts, no orders."""
        kind = type(self)
        return kind.acts is not JobStore.acts and kind.tallies is not JobStore.tallies

    def acts(
        self, new: Sequence[Act] = (), *, about: str | None = None, after: Act | None = None, limit: int = 0
    ) -> list[Act]:
        """Store new acts of people, then return up to `limit` acts, newest first: of all, or about one subject.

        `after` is the last act of the previous page. The store keeps the newest 10,000 acts, for 90 days; adding acts
        deletes older ones. A store without history keeps and returns none.
        """
        self._drop_history(new)
        return []

    def tallies(
        self,
        new: Sequence[Tally] = (),
        *,
        kind: str = "all",
        name: str | None = None,
        level: int = 0,
        since: int = 0,
        until: int = 0,
    ) -> list[Tally]:
        """Add new counts to the stored ones, then return tallies of a kind: of all its names, or of one.

        Return the tallies that overlap the time from `since` to `until`, which is empty by default. Keep the counts of
        each level for as long as `LEVELS` says. A stretch has at most `MOST_NAMES` names of a kind, besides the empty
        name, which takes the counts of all others. A store without history keeps and returns none.
        """
        self._drop_history(new)
        return []

    def _drop_history(self, new: Sequence[Act | Tally]) -> None:
        """Log once that this store keeps neither acts of people nor counters."""
        if new and not self._dropped_history:
            self._dropped_history = True
            log.info("%s keeps no history: there is no audit, and charts stay empty", type(self).__name__)

    # -- optional: a store may override these ----------------------------------------------------------------------

    def standings(self, run_ids: Sequence[str]) -> list[RunStanding | None]:
        """Return the standing of the run with each of these ids, or None; a back end can avoid reading the bytes."""
        runs = self.get_runs(run_ids)
        return [None if run is None else RunStanding(run.status, run.refused) for run in runs]

    def cursor(self) -> int | None:
        """Return the cursor of CHANGES that this process knows, without asking a server; None if it knows none.

        The cursor has moved for every change of this process whose verb has returned. A verb that begins after this
        call sees all changes that moved the cursor before. So a loop can tell whether it has looked since a change.
        """
        return None

    def far_edges(self, runs: Sequence[Run]) -> list[tuple[str, str]]:
        """Return the pairs of predecessor and new run that this store keeps apart, so that no edge can join them."""
        return []

    def recent_runs(self, job_ids: Sequence[str], limit: int) -> list[list[Run]]:
        """Return up to `limit` of the newest runs of each job; a back end may do it in one round trip."""
        return [self.find_runs(RunQuery(job_id=job_id), limit=limit) for job_id in job_ids]

    def made_behind(self, after: Run | None, number: int) -> int | None:
        """Return the creation time of the run that is `number` runs older than `after`, or than the newest run.

        Return None if there are fewer. A search without an index can stop at that time. A store that finds all runs by
        an index returns None.
        """
        return None

    def add_runs_within(self, target: Any, connection: Any, runs: Sequence[Run], now: int) -> Answers[str | None]:
        """Add runs as `add_runs` does, in the transaction of a SQLAlchemy Session or Connection (`target`)."""
        raise ConfigurationError(
            f"{type(self).__name__} takes no part in a SQL transaction; give the app outbox=engine, with the engine of "
            "your database"
        )

    def on_thread(self) -> AbstractContextManager[None]:
        """Return a context for the life of a node's thread; a back end may keep a connection for each thread."""
        return nullcontext()

    def after_commit(self, work: Callable[[], object]) -> None:
        """Call a function once the caller's transaction on this thread has committed; if none is open, call it now."""
        work()

    def check_wait(self, run_ids: Sequence[str]) -> None:
        """Raise if these unfinished runs cannot end while this thread waits for them."""

    def generations(self) -> tuple[Generation, ...]:
        """Return the identity of each part of the store, to detect lost data; an empty tuple if it cannot tell."""
        return ()

    def health(self) -> Health:
        """Return which acknowledged writes survive, according to the server's settings; change nothing."""
        if self.volatile:
            return Health(durable=False, reasons=("everything is in the memory of this process and ends with it",))
        return Health(reasons=(f"{type(self).__name__} does not say what survives",))

    def use_clock(self, clock: Clock) -> None:
        """Use the clock of the app or scheduler, if the store does not have its own."""

    def shift_clock(self, seconds: float) -> None:
        """Move the store's clock for a test."""
        raise NotImplementedError(f"{type(self).__name__} has no clock that tests can move")

    # -- for stores of bytes: see `RecordStore` ---------------------------------------------------------------------

    def pack_run(self, run: Run) -> Any:
        """Return a run as this store keeps it, for `add_runs`; raise EncodeError if it cannot be kept.

        The code that makes a run packs it once. So an error affects only that run, and one thread can pack while
        another stores.
        """
        return run

    def pack_like(self, run: Run) -> PackLike:
        """Return a function that packs runs like this one: with another id, other arguments and another time.

        A caller that enqueues many calls of a task packs their common parts only once.
        """

        def pack(run_id: str, args: Sequence[Any], kwargs: Mapping[str, Any], now: int) -> Run:
            call = replace(run.call, args=tuple(args), kwargs=dict(kwargs))
            return replace(run, id=run_id, call=call, created_at=now, run_at=now)

        return pack

    def pack_outcome(self, outcome: Outcome) -> Any:
        """Return an outcome as this store keeps it, for `settle`; raise EncodeError if it cannot be kept."""
        return outcome

    def examine_jobs(self) -> tuple[list[Job], dict[str, str]]:
        """Return the jobs that this process can restore, and the reasons for the others by id; set none aside."""
        return self.get_jobs().jobs, {}

    def sign_anew(self, job: Job) -> bool:
        """Replace an unsigned stored job by `job`, signed, if both have the same declaration.

        The stored next run time stays. Return False, and change nothing, if there is no such job.
        """
        return False

    def mend(self, *, thorough: bool = False) -> int:
        """Put back jobs that were set aside and can be restored by now; return how many records were mended.

        If `thorough`, also set aside records that were altered so that no other verb finds them.
        """
        return 0
