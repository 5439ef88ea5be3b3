"""The store contract: jobs, runs and service. A store has no policy: it writes atomically and finds what it wrote.

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
"""The topics of `wait`: what may concern a loop, and ends of runs."""
PackLike = Callable[[str, Sequence[Any], Mapping[str, Any], int], Any]
"""Packs a run of this id, with these arguments, made and due at this instant."""
RUNS_STEP: Final = 4096
"""A store that `tells_topics` moves the cursor of CHANGES by a multiple of this if a change concerns runs alone."""
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
    """True if nothing outlives the process: a stopping node then finishes pending runs instead of leaving them."""
    keeps_objects: ClassVar[bool] = False
    """True if the store keeps callables and arguments as objects, so lambdas and bound methods work."""
    on_set_aside: Callable[[str, str, str | None, str], None] | None = None
    """A function that the store calls after it set a record aside, with "job" or "run", the id, queue and reason."""
    remote: bool = False
    """True if a write waits for a server: a caller with many writes can work while it waits."""
    tells_topics: bool = False
    """True if the cursor of CHANGES says whether jobs may have changed: see `RUNS_STEP`."""
    _dropped_history: bool = False

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

        A taken id raises ConflictingIdError; with `replace`, the new job replaces it and keeps its incarnation. Each
        write of a job makes a new version; versions are never used again, not even after remove and add.
        """

    @abstractmethod
    def update_job(self, job: Job) -> None:
        """Replace the job if its stored version is still `job.version`, and set the new one on it.

        A new job object, with version 0, replaces the stored job with its id, as in APScheduler. Raise JobLookupError
        if there is none, VersionConflict if it was changed meanwhile. The unfinished runs, the incarnation and the
        open missed record of the job stay as they are.
        """

    @abstractmethod
    def remove_jobs(self, job_ids: Sequence[str] | None = None, *, broken: bool = False) -> int:
        """Remove the jobs with these ids (None: all), or their records that were set aside; return how many."""

    @abstractmethod
    def get_jobs(self, job_ids: Sequence[str] | None = None, *, broken: bool = False) -> JobList:
        """Return the jobs with these ids (None: all) by next run time, paused last; or those that were set aside."""

    @abstractmethod
    def set_aside(self, job_id: str, version: int, reason: str | None) -> bool:
        """Set aside a job of this version that cannot be restored; keep its bytes and the reason.

        Without a reason, put back the job with this id that was set aside last, whatever its version; raise
        ConflictingIdError if another job has the id by now. Return False if there is no such job.
        """

    @abstractmethod
    def due(self, limit: int, hold: float) -> DuePage:
        """Return up to `limit` due jobs, earliest first, and hide them from other callers for `hold` seconds.

        Hiding saves other schedulers from planning in vain; it is not a lock. Any write of a job makes it visible
        again. `due(0, 0)` returns when the earliest job of all is due, hidden or not.
        """

    @abstractmethod
    def fire(self, firings: Sequence[Firing], lease: float) -> list[tuple[str, ...] | None]:
        """Take each step if its job's version is unchanged and its time has come; return the ids of the inserted runs.

        None means that the step was lost and changed nothing. Each step is atomic: it writes the next run time (None
        removes the job), a new version, the open missed record, missed records (replaced by id) and runs. It does not
        insert a run whose id is known; the id of a deleted run stays known for an hour. A run that comes claimed is
        leased for `lease` seconds. For a step `besides` the schedule, the job need not be due, and
        without a next run time it is paused, not removed. A `job` in the step replaces the stored one, as
        `update_job` does.
        """

    # -- runs --------------------------------------------------------------------------------------------------

    # An edge leads from a run to one that comes after it (`Run.after`). A run that waits for others is blocked, and
    # `waits` is how many of them have not ended. The call that ends a run judges its edges, in the same step and after
    # all statuses of the call are written. An end in the mask of an edge takes one off the successor's `waits`; the
    # last one releases it: it becomes pending. Its `run_at` stays if that lies ahead; a negative `run_at` is a delay
    # in microseconds that counts from the release. Any other end refuses the successor: it becomes pending with
    # `refused` set to the id of the run that ended, due at once and outside its gate; its claimer cancels it.
    # Refused beats released. An edge stays until one of its runs is deleted or its predecessor is sent back.

    @abstractmethod
    def add_runs(self, runs: Sequence[Run]) -> Answers[str | None]:
        """Add waiting runs; return the id of each, or of the unfinished run that holds its unique key.

        A known id changes nothing, and its predecessors are not looked at. A predecessor is a run of this call that
        comes before, or one in the store: while it is unfinished it cannot end before the edge is stored; one that has
        ended counts by its status. If a predecessor is not there, the run is not stored (None); nor is a run of this
        call that comes after one which was not stored for this reason or because its unique key is taken. A run has at
        most 1,000 predecessors and 1,000 successors; one more raises ValueError. A run may be packed: see `pack_run`.
        """

    @abstractmethod
    def claim(self, wants: Sequence[Want], *, node: str, token: str, lease: float) -> ClaimedRuns:
        """Lease due runs to `node`: for each want, up to its limit of its lanes (see `core.lanes`), in this order.

        Within a want, higher priority goes first, then earlier run time; one want takes nothing from the limit of
        another. Each run becomes running, with `attempt` raised, `token` set and `started_at` at the store's now;
        `followed` and `refused` are told. A unique key that begins with `>` is given up. A repeated call with the same
        token returns the runs still held under it instead of claiming more. A paused queue gives nothing from any of
        its lanes. `next_at` is the earliest over all wants.
        """

    @abstractmethod
    def extend(self, beats: Sequence[Beat], lease: float) -> list[Hold]:
        """Renew the lease of each claim that is still held, keep its reports, and return its standing."""

    @abstractmethod
    def settle(self, outcomes: Sequence[Outcome]) -> Answers[bool]:
        """Write each outcome whose condition holds for the stored run, with its `then`; return which were written.

        Do not write a running run as pending if it is marked to be stopped: the caller of `cancel` expects its end. Nor
        if it needs a unique key that another unfinished run has by now. The runs in `then` are added as `add_runs` does
        it. A run that ends releases or refuses those after it. Of a held run that has succeeded, a store may leave
        alone what its holder does not change: queue, priority, time, attempt and policy. A run that is sent back from
        its end loses the edges to and from it; one that is written as blocked is judged anew by its `after`, as
        `add_runs` does it, except that a predecessor that is gone counts as satisfied. The store, not the outcome,
        keeps `waits`, `followed`, and (but for a run that is sent back) `refused`. An outcome may be packed: see
        `pack_outcome`.
        """

    @abstractmethod
    def get_runs(self, run_ids: Sequence[str]) -> list[Run | None]:
        """Return the run with each of these ids, or None."""

    @abstractmethod
    def find_runs(self, query: RunQuery, *, after: Run | None = None, limit: int = 100) -> list[Run]:
        """Return matching runs, newest first; `after` is the last run of the previous page.

        `lapsed` runs, by the store's clock, come in any order; the other fields of the query are then not set.
        """

    @abstractmethod
    def cancel(self, run_ids: Sequence[str]) -> list[bool]:
        """Mark running runs to be stopped; their holder learns it from `extend`, or when it tries to give them back."""

    @abstractmethod
    def delete_runs(self, run_ids: Sequence[str]) -> int:
        """Delete finished runs and the edges to and from them; return how many."""

    @abstractmethod
    def prune(self, limit: int = 1000) -> int:
        """Delete up to `limit` finished runs that are past their retention by age or count; broken ones are kept.

        A run stays while one that comes after it is unfinished; over an edge that holds (`HOLDS`), while the successor
        is there at all. Such a run is looked at again an hour later.
        """

    # -- service -------------------------------------------------------------------------------------------------

    @abstractmethod
    def beat(self, node: NodeInfo | None = None, ttl: float = 0.0) -> int:
        """Announce a node, which is forgotten after `ttl` silent seconds (0: at once), and return the store's now.

        Without a node, it only returns the time, which also shows that the store answers.
        """

    @abstractmethod
    def nodes(self) -> list[NodeInfo]:
        """Return the living nodes."""

    # A run may name a gate and carry its limit (`gate`, `gate_spec`). `claim` judges it by `core.waiting.gates.judge`,
    # with the number of running runs of the gate. A run without a slot is parked: it becomes blocked with no `waits`.
    # When a run of the gate stops running, or ends without having run, or leaves the gate, the most urgent parked run
    # of each lane becomes pending again, due now: higher priority first, then older. Each lane, so that a lane that
    # nobody serves keeps no other out. A parked run that is postponed is pending: the claim judges it when it is due.
    # A refused run passes no gate. Each run is judged once per turn, and a full gate hides no run behind it. The gate
    # `queue:<name>` counts the running runs in all lanes of a queue; runs above its number wait.

    @abstractmethod
    def set_gate(self, name: str, allowed: int | None) -> None:
        """Let at most `allowed` runs of a gate run at once, whatever they say themselves; None means as they say.

        `queue:mail` is the gate of the queue `mail`: 0 or less pauses the queue. A raised number lets in as many
        parked runs as fit; a lowered one stops nobody. A store forgets a gate that has no number and that no run needs.
        """

    @abstractmethod
    def stats(self, query: RunQuery | None = None) -> Stats:
        """Return the queues that hold unfinished runs or are paused, the totals, the number of jobs, the limits set.

        With a query, return only how many runs match it. If it has a `cap`, any number above that will do, and a store
        without an index for it may look at the newest runs only; it then says that the answer is not complete.
        """

    @abstractmethod
    def wait(self, cursor: int, timeout: float, topic: str = CHANGES) -> int:
        """Sleep until a change since `cursor` may concern a loop, or for `timeout` seconds.

        Return the new cursor; start with 0. Changes made between two calls are not missed. With the topic `ENDS`, sleep
        until a run has ended. That is a hint, which may be lost. Listening for it may cost something while nobody
        waits, so a call with a timeout of 0 stops it; each topic has its own cursor.
        """

    # -- what a store may keep besides: history ----------------------------------------------------------------------

    @property
    def keeps_history(self) -> bool:
        """Whether the store overrides `acts` and `tallies`; without them it has no audit, no charts, no orders."""
        kind = type(self)
        return kind.acts is not JobStore.acts and kind.tallies is not JobStore.tallies

    def acts(
        self, new: Sequence[Act] = (), *, about: str | None = None, after: Act | None = None, limit: int = 0
    ) -> list[Act]:
        """Keep acts of people, then return up to `limit` acts, newest first: all of them, or those about one thing.

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
        """Add counts to those that are kept, then return tallies of a kind: of all its names, or of one.

        Those returned overlap the time from `since` to `until`, which is empty by default. The counts of each level are
        kept for as long as `LEVELS` says; a stretch has at most `MOST_NAMES` names of a kind, besides the empty one,
        which takes the counts of all others. A store without history keeps and returns none.
        """
        self._drop_history(new)
        return []

    def _drop_history(self, new: Sequence[Act | Tally]) -> None:
        """Say once that what people do and what is counted is not kept."""
        if new and not self._dropped_history:
            self._dropped_history = True
            log.info("%s keeps no history: there is no audit, and charts stay empty", type(self).__name__)

    # -- what a store may override ---------------------------------------------------------------------------------

    def standings(self, run_ids: Sequence[str]) -> list[RunStanding | None]:
        """Return the status of the run with each of these ids, or None; a back end can do it without reading bytes."""
        runs = self.get_runs(run_ids)
        return [None if run is None else RunStanding(run.status, run.refused) for run in runs]

    def cursor(self) -> int | None:
        """Return the cursor of CHANGES as far as this process knows it, without asking a server; None: it is not known.

        It has moved for every change of this process whose verb has returned. A verb that begins after this call sees
        all changes that have moved it so far. So a loop can tell that it has looked since a change.
        """
        return None

    def far_edges(self, runs: Sequence[Run]) -> list[tuple[str, str]]:
        """Return the pairs of predecessor and new run that this store keeps apart, so that no edge can join them."""
        return []

    def recent_runs(self, job_ids: Sequence[str], limit: int) -> list[list[Run]]:
        """Return up to `limit` of the newest runs of each job; a back end may do it in one round trip."""
        return [self.find_runs(RunQuery(job_id=job_id), limit=limit) for job_id in job_ids]

    def made_behind(self, after: Run | None, number: int) -> int | None:
        """Return when the run was made that lies `number` runs behind `after` by age, or behind the newest.

        Return None if there are fewer. A search that no index serves can stop there; a store that finds
        everything by an index returns None.
        """
        return None

    def add_runs_within(self, target: Any, connection: Any, runs: Sequence[Run], now: int) -> Answers[str | None]:
        """Add runs as `add_runs` does, in the transaction of a SQLAlchemy Session or Connection (`target`)."""
        raise ConfigurationError(
            f"{type(self).__name__} takes no part in a SQL transaction; give the app outbox=engine, with the engine of "
            "your database"
        )

    def on_thread(self) -> AbstractContextManager[None]:
        """Wrap the life of a thread that belongs to a node; a back end may keep a connection for each."""
        return nullcontext()

    def after_commit(self, work: Callable[[], object]) -> None:
        """Call a function once a transaction of the caller's that this thread is in is committed; without one, now."""
        work()

    def check_wait(self, run_ids: Sequence[str]) -> None:
        """Raise if these unfinished runs cannot end while this thread waits for them."""

    def generations(self) -> tuple[Generation, ...]:
        """Return the identity of each part of the store, to detect lost data; nothing if this store cannot tell."""
        return ()

    def health(self) -> Health:
        """Return which acknowledged writes survive, by the settings of the server; change nothing."""
        if self.volatile:
            return Health(durable=False, reasons=("everything is in the memory of this process and ends with it",))
        return Health(reasons=(f"{type(self).__name__} does not say what survives",))

    def use_clock(self, clock: Clock) -> None:
        """Use the clock of the app or scheduler, if the store has none of its own."""

    def shift_clock(self, seconds: float) -> None:
        """Move the store's clock for a test."""
        raise NotImplementedError(f"{type(self).__name__} has no clock that tests can move")

    # -- what a store of bytes adds: see `RecordStore` --------------------------------------------------------------

    def pack_run(self, run: Run) -> Any:
        """Return a run as this store keeps it, for `add_runs`; raise EncodeError if it cannot be kept.

        The code that makes a run packs it, once: so an error concerns no other run, and one thread can pack while
        another stores.
        """
        return run

    def pack_like(self, run: Run) -> PackLike:
        """Return a function that packs runs like this one: with another id, other arguments and another time.

        Whoever enqueues many calls of a task packs what they have in common once.
        """

        def pack(run_id: str, args: Sequence[Any], kwargs: Mapping[str, Any], now: int) -> Run:
            call = replace(run.call, args=tuple(args), kwargs=dict(kwargs))
            return replace(run, id=run_id, call=call, created_at=now, run_at=now)

        return pack

    def pack_outcome(self, outcome: Outcome) -> Any:
        """Return an outcome as this store keeps it, for `settle`; raise EncodeError if it cannot be kept."""
        return outcome

    def examine_jobs(self) -> tuple[list[Job], dict[str, str]]:
        """Return the jobs that can be restored here, and by id the reason why others cannot; set none aside."""
        return self.get_jobs().jobs, {}

    def sign_anew(self, job: Job) -> bool:
        """Replace an unsigned stored job that has the same declaration as `job` by `job`, signed.

        The stored next run time stays. Return False, and change nothing, if there is no such job.
        """
        return False

    def mend(self, *, thorough: bool = False) -> int:
        """Put back jobs that were set aside and can be restored by now; return how many records were mended.

        If `thorough`, also set aside records that were altered so that no other verb finds them.
        """
        return 0
