"""Judge the health of a job: new, paused, up, late or down. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import takewhile
from operator import attrgetter
from typing import Final

import msgspec

from mainspring.core.insight.wording import brief, duration
from mainspring.core.instants import SECOND
from mainspring.core.job import Job
from mainspring.core.plan import BEYOND_CATCH_UP, LATE, MAX_INSTANCES, PAUSED, RESCHEDULED, SUPERSEDED
from mainspring.core.run import FINAL, UNFINISHED, WAITING, Run, Status

__all__ = ["RUNS_LOOKED_AT", "JobHealth", "JobState", "health_of", "missed_because", "usual_duration"]

RUNS_LOOKED_AT: Final = 20
"""Judge a job by this many of its newest runs."""
LATE_LEAST: Final = 30 * SECOND
LATE_AFTER: Final = 60 * SECOND
"""The grace beyond the usual time of a fire, in microseconds, after which it is late."""
DOWN_MOST: Final = 86_400 * SECOND
DOWN_FACTOR: Final = 10


class JobState(StrEnum):
    """The health of a job."""

    NEW = "new"
    PAUSED = "paused"
    UP = "up"
    LATE = "late"
    DOWN = "down"


class JobHealth(msgspec.Struct, frozen=True):
    """The health of a job, since when (microseconds, if known), and why; `run_id` is the run that decides it."""

    job_id: str
    state: JobState
    why: str = ""
    since: int | None = None
    run_id: str | None = None


def health_of(job: Job, runs: Sequence[Run], now: int, *, scheduled: bool = True) -> JobHealth:
    """Judge a job by its newest runs, newest first; `scheduled` says that some living node fires jobs."""
    ended = [run for run in runs if run.status in FINAL and run.reason not in (PAUSED, RESCHEDULED)]
    if job.at is None:
        return JobHealth(job.id, JobState.PAUSED, "it is paused")
    if not scheduled:
        return JobHealth(job.id, JobState.DOWN, "no living node fires jobs")
    bad = list(takewhile(lambda run: run.status in (Status.FAILED, Status.BROKEN), ended))
    if bad:
        return JobHealth(job.id, JobState.DOWN, _failed(bad), bad[-1].finished_at, bad[0].id)
    late_after = _late_after(job, ended)
    open_fires = [run for run in runs if run.status in UNFINISHED and run.due_at + late_after < now]
    if not ended and job.late_after is None and job.down_after is None:
        # Nobody knows yet how long a run takes, so a first run that goes on is not late.
        open_fires = [run for run in open_fires if run.status in WAITING]
    waiting = min(open_fires, key=attrgetter("due_at"), default=None)
    overdue = job.at if job.at + late_after < now else None
    if overdue is not None and (waiting is None or overdue < waiting.due_at):
        held = job.overlap != "skip" and any(run.status in UNFINISHED for run in runs)
        return _overdue(job, None, overdue, now, late_after, "waits for an earlier run to end" if held else "")
    if waiting is not None:
        return _overdue(job, waiting, waiting.due_at, now, late_after)
    if ended and ended[0].status is Status.MISSED:
        number = "its last fire was" if ended[0].count == 1 else f"its last {ended[0].count:,} fires were"
        why = f"{number} missed: {missed_because(ended[0].reason)}"
        return JobHealth(job.id, JobState.LATE, why, ended[0].due_at, ended[0].id)
    if not ended:
        return JobHealth(job.id, JobState.NEW, "no fire of it has ended yet")
    return JobHealth(job.id, JobState.UP, f"its last fire {ended[0].status}", ended[0].finished_at, ended[0].id)


def _late_after(job: Job, ended: Sequence[Run]) -> int:
    """Return how long after its time an unfinished fire is late: as the job says, or by how long its runs take."""
    if job.late_after is not None:
        return int(job.late_after * SECOND)
    usual = max(LATE_LEAST, _nearly_always(ended) + LATE_AFTER)
    return usual if job.down_after is None else min(usual, int(job.down_after * SECOND))


def _down_after(job: Job, due: int, late_after: int) -> int:
    """Return how long after its time an unfinished fire brings a job down."""
    if job.down_after is not None:
        return int(job.down_after * SECOND)
    following = job.trigger.next_fire(due, due)
    interval = 0 if following is None else following - due
    return min(max(DOWN_FACTOR * late_after, interval), max(DOWN_MOST, 2 * late_after))


def usual_duration(runs: Sequence[Run]) -> int | None:
    """Return the median duration of the runs that succeeded; None if fewer than three are known."""
    lengths = _lengths(runs)
    return lengths[len(lengths) // 2] if len(lengths) >= 3 else None


def _lengths(runs: Sequence[Run]) -> list[int]:
    return sorted(
        run.finished_at - run.started_at
        for run in runs
        if run.status is Status.SUCCEEDED and run.started_at is not None and run.finished_at is not None
    )


def _nearly_always(runs: Sequence[Run]) -> int:
    """Return the time within which 95 of 100 of the known runs have ended."""
    lengths = _lengths(runs)
    return lengths[-(-len(lengths) * 95 // 100) - 1] if lengths else 0


_MISSED_BECAUSE: Final = {
    MAX_INSTANCES: "as many of its runs as max_instances allows had not ended",
    LATE: "it was too late, and its misfire_grace_time is shorter",
    SUPERSEDED: "a later fire of its job took its place, since its overlap is cancel_other",
    BEYOND_CATCH_UP: "more of its fires were overdue than are caught up with (100)",
    PAUSED: "its job was paused",
    RESCHEDULED: "its job got another time",
}


def missed_because(reason: str | None) -> str:
    """Say in words why a fire was missed."""
    return _MISSED_BECAUSE.get(reason or "", brief(reason or "nobody wrote down why"))


def _failed(bad: Sequence[Run]) -> str:
    last = bad[0]
    error = brief(last.reason or "?")
    if last.errors:
        error = f"{last.errors[-1].type.rpartition('.')[2]}: {brief(last.errors[-1].message)}"
    number = "its last fire" if len(bad) == 1 else f"its last {len(bad)} fires"
    return f"{number} failed: {error}" if last.status is Status.FAILED else f"{number} could not be executed: {error}"


def _overdue(job: Job, run: Run | None, due: int, now: int, late_after: int, doing: str = "") -> JobHealth:
    state = JobState.DOWN if now - due > _down_after(job, due, late_after) else JobState.LATE
    if not doing:
        doing = "has not fired" if run is None else "waits" if run.status in WAITING else "still runs"
    why = f"a fire that was due {duration(now - due)} ago {doing}"
    return JobHealth(job.id, state, why, due, None if run is None else run.id)
