"""Marks for jobs and runs that are between two stores, and the records that carry the marks. Pure functions.

A *leaving* record is held at the source; an *arriving* one is held at the target. Each of the two marks is a due time
in the year 2200. So no node fires or starts the record, and the next move after a killed one finds it. The reason of a
held run keeps its real time.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from mainspring.core import transitions
from mainspring.core.instants import to_us
from mainspring.core.job import Job
from mainspring.core.run import Condition, Outcome, Run, Status

__all__ = [
    "ARRIVING_AT",
    "LEAVING_AT",
    "MOVED",
    "arriving",
    "arriving_job",
    "at_own_time",
    "ended",
    "has_moved",
    "is_held",
    "leaving",
    "moved_away",
    "unfinished_copy",
]

LEAVING_AT: Final = to_us(datetime(2200, 1, 1, tzinfo=UTC))
ARRIVING_AT: Final = to_us(datetime(2200, 1, 2, tzinfo=UTC))
MOVED: Final = "moved to another store"
"""The reason of a run that was cancelled at the source because it waits at the target."""
KEPT_SECONDS: Final = 7 * 86_400.0
"""Keep the record of a moved run at the source this long, for people who look for it there."""
_HELD: Final = "is being moved to another store, due "


def leaving(run: Run) -> Outcome:
    """Return the outcome that holds a waiting run at the source; a blocked run is already held by its predecessors."""
    return Outcome(_held(run, LEAVING_AT), Condition.WAITING)


def _held(run: Run, at: int) -> Run:
    return replace(run, run_at=at, reason=f"{_HELD}{run.run_at};{run.reason or ''}")


def at_own_time(run: Run) -> Run:
    """Return a held run with its own time; any other run as it is."""
    if run.reason is None or not run.reason.startswith(_HELD):
        return run
    at, _, reason = run.reason.removeprefix(_HELD).partition(";")
    return replace(run, run_at=int(at), reason=reason or None)


def is_held(run: Run, at: int) -> bool:
    """Return True if a run is held for this reason: LEAVING_AT or ARRIVING_AT."""
    return run.run_at == at and run.status is Status.PENDING


def arriving(run: Run, there: frozenset[str]) -> Run:
    """Return the copy of a waiting run for the target, held unless it waits for its predecessors in `there`.

    A deleted predecessor counts as satisfied, as it does for a run that is sent back.
    """
    own = at_own_time(run)
    copy = own if run.waits else _held(own, ARRIVING_AT)
    after = tuple(each for each in run.after if each.id in there)
    return replace(
        copy,
        call=replace(run.call, frame=None),  # to be signed by the target
        status=Status.BLOCKED if after else Status.PENDING,
        **_unclaimed(),
        after=after,
    )


def unfinished_copy(run: Run) -> Run:
    """Return the copy of an ended run in the form that the target accepts: waiting, held, and without edges."""
    return replace(
        run,
        call=replace(run.call, frame=None),
        status=Status.PENDING,
        run_at=ARRIVING_AT,
        **_unclaimed(),
        after=(),
        unique=None,
        result=None,
        errors=(),
        reason=None,
        finished_at=None,
        started_at=None,
        node=None,
    )


def ended(run: Run) -> Outcome:
    """Return the outcome that gives the copy of a run the end that the run had at the source."""
    final = replace(run, call=replace(run.call, frame=None), **(_unclaimed() | {"refused": run.refused}))
    return Outcome(final, Condition.WAITING)


def _unclaimed() -> dict[str, bool | int | None]:
    return {
        "token": None,
        "lease_until": None,
        "cancelling": False,
        "moved": False,
        "waits": 0,
        "followed": 0,
        "refused": None,
    }


def moved_away(run: Run, now: int) -> Outcome:
    """Return the outcome that ends a run at the source because it waits at the target; it triggers nothing there."""
    own = at_own_time(run)
    gone = transitions.cancel(replace(own, policy=replace(own.policy, retention=KEPT_SECONDS)), now).run
    return Outcome(replace(gone, reason=MOVED), Condition.WAITING)


def has_moved(run: Run) -> bool:
    """Return True if a run was ended at the source because it waits at the target."""
    return run.status is Status.CANCELLED and run.reason == MOVED


def arriving_job(held: Job) -> Job:
    """Return the copy of a job for the target; `nominal` keeps the next run time of a held job."""
    copy = held.copy()
    copy.at, copy.version, copy.incarnation, copy.timed = ARRIVING_AT, 0, 0, True
    copy.call = replace(held.call, frame=None)  # to be signed by the target
    return copy
