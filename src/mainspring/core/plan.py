"""Plan a due job: which of its fires run, which are missed and why, and when it is due next. Pure.

Planning takes the same time however long a job slept: its trigger counts the overdue fires by arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.lanes import THREADS_EXECUTOR
from mainspring.core.run import ON, After, Call, Run, Status
from mainspring.core.waiting.followups import with_hooks

if TYPE_CHECKING:
    from mainspring.core.job import Job

__all__ = [
    "CATCH_UP_FIRES",
    "DueJob",
    "Firing",
    "Miss",
    "MissedFires",
    "Place",
    "Plan",
    "firing",
    "make_runs",
    "passed_over",
    "plan",
    "superseded",
]

CATCH_UP_FIRES: Final = 100
"""Run at most this many overdue fires of one job; record the earlier ones as missed."""

LATE: Final = "late"
MAX_INSTANCES: Final = "max_instances"
BEYOND_CATCH_UP: Final = "catch_up"
SUPERSEDED: Final = "superseded"
"""The reason of a cancelled run or a missed fire that a later fire of the job replaced, as the job's `overlap` says."""
RESCHEDULED: Final = "rescheduled"
PAUSED: Final = "paused"


class Miss(msgspec.Struct, frozen=True, gc=False):
    """The record of fires that a job missed in a row. The store keeps it with the job; the next miss extends it."""

    run_id: str
    reason: str
    count: int
    first: int


class DueJob(msgspec.Struct, gc=False):
    """A due job as the store returns it. `at` is its next run time, `nominal` the same before jitter."""

    job: Job
    at: int
    nominal: int
    version: int
    incarnation: int
    unfinished: int = 0
    miss: Miss | None = None


class MissedFires(msgspec.Struct, frozen=True, gc=False):
    """Fires that will not run, and why."""

    reason: str
    count: int
    first: int
    last: int


class Plan(msgspec.Struct, frozen=True, gc=False):
    """The decision about a due job. If `next_at` is None, the job is finished.

    If the job `waits`, earlier runs have to end first. Then nothing is written: the fire stays due, so no crash can
    lose it.
    """

    next_at: int | None
    next_nominal: int | None
    fires: tuple[int, ...] = ()
    count: int = 1
    missed: tuple[MissedFires, ...] = ()
    waits: bool = False


class Firing(msgspec.Struct, frozen=True, gc=False):
    """One atomic step: if the job still has `version`, set its next run time (None: remove it) and insert `runs`.

    `missed` are finished records; the store replaces those that it has already, by id. `miss` becomes the job's open
    missed record. A `job` replaces the stored one in the same step. An `unscheduled` step, such as a run-now, does not
    need the job to be due; without a next run time it pauses the job instead of removing it.
    """

    job_id: str
    version: int
    next_at: int | None
    next_nominal: int | None
    runs: tuple[Run, ...] = ()
    missed: tuple[Run, ...] = ()
    miss: Miss | None = None
    job: Job | None = None
    unscheduled: bool = False


class Place(msgspec.Struct, gc=False):
    """Where a fired run goes: its queue, and the claim if it starts on this node at once."""

    queue: str
    node: str | None = None
    token: str | None = None
    until: int | None = None  # the end of the lease, which spares the store from computing it
    executor: str | None = None  # the executor that the run needs, if known: see `core.lanes`
    _blank: Run | None = None

    def blank(self, now: int) -> Run:
        """Return a run for this place, created now, whose job's fields are still empty.

        The caller copies it for each run of a page and fills in the rest: that takes a third of the time of making
        each run from nothing.
        """
        blank = self._blank
        if blank is None or blank.created_at != now:
            claimed = self.token is not None
            blank = self._blank = Run(
                id="",
                call=Call(""),
                queue=self.queue,
                executor=self.executor,
                status=Status.RUNNING if claimed else Status.PENDING,
                attempt=1 if claimed else 0,
                created_at=now,
                started_at=now if claimed else None,
                node=self.node,
                token=self.token,
                lease_until=self.until,
            )
        return blank


def plan(due: DueJob, now: int, noise: float = 0.0) -> Plan:
    """Decide what a due job does at `now`, by the store's clock; `noise` in [0, 1) is the share of jitter to use."""
    job, trigger = due.job, due.job.trigger
    following = trigger.next_fire(due.nominal, now)
    if following is None or following > now:
        count, fires = 1, [due.at]
    else:
        count, fires = trigger.overdue(due.nominal, now, 1 if job.coalesce else CATCH_UP_FIRES)
        following = trigger.next_fire(fires[-1], now)
        if following is not None and following <= now:  # a trigger of the user's that does not count its fires
            following = trigger.next_fire(now, now)
    missed: list[MissedFires] = []
    if job.coalesce:
        first = due.at
    else:
        if count > len(fires):
            cutoff = None if job.misfire_grace_time is None else now - int(job.misfire_grace_time * SECOND)
            why = LATE if cutoff is not None and fires[0] < cutoff else BEYOND_CATCH_UP
            missed.append(MissedFires(why, count - len(fires), due.at, fires[0] - 1))
        first, count = fires[0], 1
    if job.misfire_grace_time is not None:
        fires = _in_time(fires, first, count, now - int(job.misfire_grace_time * SECOND), job.coalesce, missed)
    if len(fires) > 1 and job.overlap == "cancel_other":
        missed.append(MissedFires(SUPERSEDED, len(fires) - 1, fires[0], fires[-2]))
        fires = fires[-1:]
    if fires and due.unfinished >= job.max_instances:
        if job.overlap != "skip":
            return Plan(due.at, due.nominal, waits=True)
        missed.append(MissedFires(MAX_INSTANCES, count if job.coalesce else len(fires), fires[0], fires[-1]))
        fires = []
    next_at = following
    if following is not None and trigger.jitter:
        next_at = following + int(trigger.jitter * noise * SECOND)
    return Plan(next_at, following, tuple(fires), count, tuple(missed))


def _in_time(
    fires: list[int], first: int, count: int, cutoff: int, coalesce: bool, missed: list[MissedFires]
) -> list[int]:
    """Return the fires that are not before the cutoff; note the others as missed."""
    if fires[0] >= cutoff:
        return fires
    in_time = [fire for fire in fires if fire >= cutoff]
    late = fires[: len(fires) - len(in_time)]
    number = count if coalesce else len(late)
    if missed and missed[-1].reason == LATE:
        earlier = missed.pop()
        missed.append(MissedFires(LATE, earlier.count + number, earlier.first, late[-1]))
    else:
        missed.append(MissedFires(LATE, number, first, late[-1]))
    return in_time


def superseded(due: DueJob, unfinished: Iterable[Run]) -> list[Run]:
    """Return the runs to cancel so that a waiting fire can run: the oldest that nobody is stopping already."""
    stem = f"{due.job.id}@{due.incarnation}"
    runs = sorted((run for run in unfinished if run.id.rpartition("@")[0] == stem), key=lambda run: run.fire_time or 0)
    surplus = len(runs) - due.job.max_instances + 1
    return [run for run in runs[: max(0, surplus)] if not run.cancelling]


def firing(due: DueJob, planned: Plan, place: Place, now: int) -> Firing:
    """Turn a plan into one atomic step of the store."""
    job = due.job
    runs: tuple[Run, ...] = ()
    if planned.fires:
        grace = job.misfire_grace_time
        runs = make_runs(job, due.incarnation, place, planned.fires, now, grace=grace, count=planned.count)
    missed: tuple[Run, ...] = ()
    miss = None if planned.fires else due.miss
    for item in planned.missed:
        record, miss = _record(due, item, miss, place, now)
        missed += (record,)
    miss = None if planned.fires else miss
    return Firing(job.id, due.version, planned.next_at, planned.next_nominal, runs, missed, miss)


def passed_over(job: Job, changed: Job, now: int) -> Firing | None:
    """Return the step that replaces a job with `changed` and records the overdue fires that the change skips as missed.

    Return None if the change skips no fire.
    """
    until = now if changed.at is None else min(now, changed.at - 1)
    if job.at is None or job.at > until:
        return None
    nominal = job.at if job.nominal is None else job.nominal
    try:
        count, fires = job.trigger.overdue(nominal, until, 1)
    except Exception:  # the trigger fails, and this change may be the repair
        count, fires = 1, []
    reason = PAUSED if changed.at is None else RESCHEDULED
    skipped = MissedFires(reason, max(count, 1), job.at, max([job.at, *fires]))
    due = DueJob(job, job.at, nominal, job.version, job.incarnation)
    place = Place(job.queue if job.executor == "queue" else f".{job.executor}")
    record, _ = _record(due, skipped, None, place, now)
    return Firing(job.id, job.version, changed.at, changed.nominal, missed=(record,), job=changed, unscheduled=True)


def make_runs(
    job: Job,
    incarnation: int,
    place: Place,
    fires: Sequence[int],
    now: int,
    *,
    grace: float | None = None,
    count: int = 1,
) -> tuple[Run, ...]:
    """Make the runs of a job's fires, and their hooks. Each run comes after the one before; the first may be claimed.

    Together the runs count as one unfinished run of the job. Only the last one counts: it is unfinished as long as any
    of them is.
    """
    lateness, policy, blank = None if grace is None else int(grace * SECOND), job.policy, place.blank(now)
    first = replace(
        blank,
        id=f"{job.id}@{incarnation}@{fires[0]}",
        call=job.call,
        # In a queue, a run waits with those for threads until its function is found.
        executor=blank.executor or (THREADS_EXECUTOR if job.executor == "queue" else job.executor),
        job_id=job.id,
        policy=policy,
        priority=policy.priority,
        fire_time=fires[0],
        run_at=fires[0],
        start_by=None if lateness is None else fires[0] + lateness,
        count=count,
        counted=fires[0] == fires[-1],
    )
    if len(fires) == 1 and policy.hook is None:
        return (first,)
    runs = [first]
    for fire_time in fires[1:]:
        runs.append(
            replace(
                first,
                id=f"{job.id}@{incarnation}@{fire_time}",
                status=Status.BLOCKED,
                after=(After(runs[-1].id, ON["end"]),),
                attempt=0,
                fire_time=fire_time,
                run_at=fire_time,
                start_by=None if lateness is None else fire_time + lateness,
                started_at=None,
                node=None,
                token=None,
                lease_until=None,
                counted=fire_time == fires[-1],
            )
        )
    return tuple(with_hooks(runs))


def _record(due: DueJob, item: MissedFires, miss: Miss | None, place: Place, now: int) -> tuple[Run, Miss]:
    """Make the record of missed fires, extending the open one if the reason is the same."""
    job = due.job
    if miss is None or miss.reason != item.reason:
        miss = Miss(f"{job.id}@{due.incarnation}@{item.first}:missed", item.reason, item.count, item.first)
    else:
        miss = Miss(miss.run_id, miss.reason, miss.count + item.count, miss.first)
    record = Run(
        id=miss.run_id,
        call=job.call,
        queue=place.queue,
        executor=job.executor,
        job_id=job.id,
        status=Status.MISSED,
        policy=job.policy,
        created_at=now,
        fire_time=miss.first,
        run_at=miss.first,
        finished_at=now,
        reason=item.reason,
        count=miss.count,
        last=item.last,
    )
    return record, miss
