"""The store contract, written once: jobs, runs and service. Stores are dumb: they write atomically and find again.

Instants are microseconds UTC (`int`), judged by the store's own clock. Every hot method takes a batch and costs one
round trip. A back end subclasses `JobStore` and passes `mainspring.testing.conformance`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace as _with

from mainspring.clock import Clock
from mainspring.core.insight.acts import Act
from mainspring.core.instants import SECOND, from_us, to_us
from mainspring.core.job import Job
from mainspring.core.plan import DueJob, Firing
from mainspring.core.run import Beat, Outcome, Run, Status
from mainspring.errors import ConflictingIdError, JobLookupError, TransientJobError, VersionConflict
from mainspring.jobstores.health import Health

_SUGGEST_FROM_JOBS = 1000
"""Jobs among which a likely name is looked for when one is not found."""

__all__ = [
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
    "QueueInfo",
    "RunQuery",
    "Stats",
    "TransientJobError",
    "VersionConflict",
    "unknown_job",
]


class Hold(StrEnum):
    """What `extend` answers for a claim."""

    HELD = "held"
    LOST = "lost"
    CANCEL = "cancel"  # still held, but somebody wants it stopped


class DuePage(msgspec.Struct):
    """A page of due jobs: the store's now, and when the next job that is not on the page comes due."""

    now: int
    jobs: list[DueJob]
    next_at: int | None


class ClaimedRuns(msgspec.Struct):
    """Runs leased to a node, most urgent first: the store's now, and when the next waiting run of the queues is due."""

    now: int
    runs: list[Run]
    next_at: int | None


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A node as it announces itself; `beat_at` is set by the store."""

    id: str
    host: str
    pid: int
    started_at: int
    queues: tuple[str, ...] = ()
    state: str = "running"
    version: str = ""
    missing: tuple[str, ...] = ()  # functions that this node cannot import
    stuck: int = 0  # threads lost to runs that did not end when they were stopped
    beat_at: int = 0

    def seen_at(self, now: int, lease: float) -> NodeInfo:
        """Return the node as it looks at an instant: `silent` once two of its beats, of three a lease, are missing."""
        silent = now - self.beat_at > lease * SECOND * 2 / 3
        return _with(self, state="silent") if silent else self


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A queue and what is in it; `oldest_at` is the run time of the run that has been due longest."""

    name: str
    waiting: int = 0
    delayed: int = 0
    running: int = 0
    paused: bool = False
    oldest_at: int | None = None


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """What a store holds: its queues by name, how many runs ever reached each final status, how many jobs there are.

    Asked about a query, a store says only how many runs are `matching`.
    """

    queues: list[QueueInfo] = []
    totals: dict[str, int] = {}
    jobs: int = 0
    matching: int = 0


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs: all that match every given field; or those `lapsed`, which run though their lease is over."""

    status: tuple[Status, ...] = ()
    queue: str | None = None
    group: str | None = None
    job_id: str | None = None
    lapsed: bool = False


class Generation(msgspec.Struct, frozen=True):
    """A part of a store that is atomic in itself: which one it is, and the last version that it has given to a job."""

    made: str
    version: int

    def follows(self, before: Generation) -> bool:
        """Return True if this part still has what it had before; one that was made anew or has gone back does not."""
        return self.made == before.made and self.version >= before.version


class BrokenJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that could not be restored, kept with its bytes and the reason."""

    id: str
    reason: str
    payload: Any
    at: int


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that a store holds: those that can fire, or those that were set aside."""

    jobs: list[Job] = []
    broken: list[BrokenJob] = []


def unknown_job(store: JobStore, job_id: str) -> JobLookupError:
    """Return the error for an id that no job has, with likely names if the jobs are few enough to be read."""
    few = store.stats().jobs <= _SUGGEST_FROM_JOBS
    return JobLookupError(job_id, tuple(job.id for job in store.get_jobs().jobs) if few else ())


class BaseJobStore(ABC):
    """APScheduler's eight methods: what a job store of the user's own has to have."""

    _scheduler: Any = None
    _alias: str | None = None

    def start(self, scheduler: Any, alias: str) -> None:
        """Open what the store needs; called when the scheduler starts or the store is added to a running one."""
        self._scheduler = scheduler
        self._alias = alias
        self._logger = logging.getLogger("mainspring.jobstores." + str(alias))

    def shutdown(self) -> None:  # noqa: B027 - a store may have nothing to release
        """Release what `start` opened."""

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
        """Replace a job; raise JobLookupError if it is not there."""

    @abstractmethod
    def remove_job(self, job_id: str) -> None:
        """Remove a job; raise JobLookupError if it is not there."""

    @abstractmethod
    def remove_all_jobs(self) -> None:
        """Remove all jobs."""

    def _fix_paused_jobs_sorting(self, jobs: list[Job]) -> None:
        """Move the paused jobs of a sorted list to its end."""
        jobs.sort(key=lambda job: job.next_run_time is None)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class JobStore(BaseJobStore):
    """The whole contract: jobs, runs and service."""

    volatile: ClassVar[bool] = False
    """True if nothing outlives the process: then a stopping node finishes what is pending instead of leaving it."""
    keeps_objects: ClassVar[bool] = False
    """True if callables and arguments are kept as they are, so that lambdas and bound methods work."""
    on_set_aside: Callable[[str, str, str | None, str], None] | None = None
    """Called after the store has set a record aside: with "job" or "run", its id, its queue and the reason."""
    remote: bool = False
    """True if storing means waiting for a server: who stores much goes on meanwhile."""

    # -- APScheduler's verbs, made of the contract's -------------------------------------------------------------

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
        """Remove a job; raise JobLookupError if it is not there."""
        if not self.remove_jobs([job_id]):
            raise unknown_job(self, job_id)

    def remove_all_jobs(self) -> None:
        """Remove all jobs."""
        self.remove_jobs()

    # -- jobs --------------------------------------------------------------------------------------------------

    @abstractmethod
    def add_jobs(self, jobs: Sequence[Job], *, replace: bool = False) -> None:
        """Add jobs, all or none, and set `version` and `incarnation` on each.

        A taken id raises ConflictingIdError; with `replace` the job of that id is replaced and keeps its incarnation.
        Each write of a job makes a new version; versions are never used again, not even after remove and add.
        """

    @abstractmethod
    def update_job(self, job: Job) -> None:
        """Replace the job if its stored version is still `job.version`, and set the new one on it.

        A job object that was made anew, with version 0, replaces the stored one of its id, as in APScheduler.
        Raise JobLookupError if it is not there, VersionConflict if it was changed meanwhile. Its unfinished runs,
        incarnation and open missed record are untouched.
        """

    @abstractmethod
    def remove_jobs(self, job_ids: Sequence[str] | None = None, *, broken: bool = False) -> int:
        """Remove the jobs of these ids (None: all), or all records of them that were set aside; answer how many."""

    @abstractmethod
    def get_jobs(self, job_ids: Sequence[str] | None = None, *, broken: bool = False) -> JobList:
        """Return the jobs of these ids (None: all) by next run time, paused ones last; or those that were set aside."""

    @abstractmethod
    def set_aside(self, job_id: str, version: int, reason: str | None) -> bool:
        """Keep a job of this version that cannot be restored, with its bytes and the reason, out of others' way.

        Without a reason put the one that was set aside last back as it was, whatever its version; ConflictingIdError
        if another job has the id by now. Answer False if there is no such job.
        """

    @abstractmethod
    def due(self, limit: int, hold: float) -> DuePage:
        """Hand out up to `limit` due jobs, earliest first, and hide them from other callers for `hold` seconds.

        Hiding saves other schedulers planning in vain; it is not a lock. Any write of a job makes it visible again.
        `due(0, 0)` tells when the earliest job of all is due, hidden or not.
        """

    @abstractmethod
    def fire(self, firings: Sequence[Firing], lease: float) -> list[tuple[str, ...] | None]:
        """Take each step if its job's version is unchanged and its time has come; answer the ids of the runs inserted.

        None: the step was lost and changed nothing. Each step is atomic: next run time (None: the job is removed),
        new version, open missed record, missed records (replaced by id) and runs. A run whose id is known, also by a
        run that finished within the last hour, is not inserted. A run that comes claimed is leased for `lease` seconds.
        For a step `besides` the schedule the job need not be due, and without a next run time it is paused, not
        removed. A `job` that the step brings replaces the stored one, as `update_job` does.
        """

    # -- runs --------------------------------------------------------------------------------------------------

    @abstractmethod
    def add_runs(self, runs: Sequence[Run]) -> list[str]:
        """Add pending runs; answer each one's id, or that of the unfinished run that holds its unique key.

        A known id changes nothing. A run may be packed, see `pack_run`.
        """

    @abstractmethod
    def claim(self, queues: Sequence[str], *, node: str, token: str, limit: int, lease: float) -> ClaimedRuns:
        """Lease up to `limit` due runs of these queues to `node`: higher priority first, then earlier run time.

        Each becomes running with `attempt` raised, `token` set and `started_at` the store's present time. Repeating
        with the same token returns the runs still held under it instead of claiming more. A paused queue gives nothing.
        """

    @abstractmethod
    def extend(self, beats: Sequence[Beat], lease: float) -> list[Hold]:
        """Renew the lease of each claim that is still held, keep what it reports, and say how it stands."""

    @abstractmethod
    def settle(self, outcomes: Sequence[Outcome]) -> list[bool]:
        """Write each outcome whose condition holds for the stored run, with its `then`; answer which were written.

        A running run that is marked to be stopped is not written as pending: whoever marked it was told that it ends.
        Nor is a run that wants a unique key back which another unfinished run has. An outcome may be packed, see
        `pack_outcome`.
        """

    @abstractmethod
    def get_runs(self, run_ids: Sequence[str]) -> list[Run | None]:
        """Return the runs of these ids, None where there is none."""

    @abstractmethod
    def find_runs(self, query: RunQuery, *, after: Run | None = None, limit: int = 100) -> list[Run]:
        """Return matching runs, newest first; `after` is the last run of the page before.

        Runs that have `lapsed` by the store's clock come in any order, and nothing else is asked of them.
        """

    @abstractmethod
    def cancel(self, run_ids: Sequence[str]) -> list[bool]:
        """Mark running runs to be stopped; their holder learns it by `extend`, or when it would give them back."""

    @abstractmethod
    def delete_runs(self, run_ids: Sequence[str]) -> int:
        """Delete finished runs; answer how many."""

    @abstractmethod
    def prune(self, limit: int = 1000) -> int:
        """Delete up to `limit` finished runs that are past their retention by age or count; broken ones are kept."""

    # -- what people did -----------------------------------------------------------------------------------------

    @abstractmethod
    def acts(
        self, new: Sequence[Act] = (), *, about: str | None = None, after: Act | None = None, limit: int = 0
    ) -> list[Act]:
        """Keep what people did, then return up to `limit` acts, newest first: all, or those about one thing.

        `after` is the last act of the page before. An act is kept for 90 days, and while it is one of the newest
        10,000; older ones are forgotten as others are added.
        """

    # -- service -------------------------------------------------------------------------------------------------

    @abstractmethod
    def beat(self, node: NodeInfo | None = None, ttl: float = 0.0) -> int:
        """Announce a node, which is forgotten after `ttl` silent seconds (0: it leaves), and return the store's now.

        Without a node this only tells the time, and that the store answers.
        """

    @abstractmethod
    def nodes(self) -> list[NodeInfo]:
        """Return the nodes that are alive."""

    @abstractmethod
    def set_queue(self, name: str, *, paused: bool) -> None:
        """Pause or resume a queue."""

    @abstractmethod
    def stats(self, query: RunQuery | None = None) -> Stats:
        """Return the queues that hold unfinished runs or are paused, the totals and the number of jobs.

        With a query, return how many runs match it and nothing else.
        """

    @abstractmethod
    def wait(self, cursor: int, timeout: float) -> int:
        """Sleep until something that may interest a loop has changed since `cursor`, or for `timeout` seconds.

        Return the new cursor; start with 0. Changes made before the call are not missed.
        """

    # -- what a store may do better, or besides --------------------------------------------------------------------

    def recent_runs(self, job_ids: Sequence[str], limit: int) -> list[list[Run]]:
        """Return up to `limit` of the newest runs of each job; a back end may do it in one round trip."""
        return [self.find_runs(RunQuery(job_id=job_id), limit=limit) for job_id in job_ids]

    def generations(self) -> tuple[Generation, ...]:
        """Return what tells each part of the store from one that has lost data; nothing if this store cannot tell."""
        return ()

    def health(self) -> Health:
        """Say what survives of what was acknowledged, by asking the server how it is set; change nothing."""
        if self.volatile:
            return Health(durable=False, reasons=("it is kept in the memory of this process and ends with it",))
        return Health(reasons=(f"{type(self).__name__} does not say what survives",))

    def use_clock(self, clock: Clock) -> None:
        """Take the time from the clock of the app or scheduler, if the store has none of its own."""

    def shift_clock(self, seconds: float) -> None:
        """Move the store's clock for a test."""
        raise NotImplementedError(f"{type(self).__name__} has no clock that tests can move")

    # -- what a store of bytes does besides: see `RecordStore` -----------------------------------------------------

    def pack_run(self, run: Run) -> Any:
        """Return a run as this store keeps it, for `add_runs`; raise EncodeError if it cannot be kept.

        Whoever makes a run packs it, once: the error concerns no other run, and one thread packs while another stores.
        """
        return run

    def pack_outcome(self, outcome: Outcome) -> Any:
        """Return an outcome as this store keeps it, for `settle`; raise EncodeError if it cannot be kept."""
        return outcome

    def examine_jobs(self) -> tuple[list[Job], dict[str, str]]:
        """Return the jobs that can be restored here, and by id why others cannot; set none aside."""
        return self.get_jobs().jobs, {}

    def sign_anew(self, job: Job) -> bool:
        """Sign a stored job that is not signed and has the declaration of `job`: write `job` in its place.

        The stored next run time stays. Answer False, with nothing changed, if there is no such job.
        """
        return False

    def mend(self, *, thorough: bool = False) -> int:
        """Put back jobs that were set aside and can be restored by now; answer how many records were mended.

        If `thorough`, also set aside records that somebody altered so that no other verb finds them.
        """
        return 0
