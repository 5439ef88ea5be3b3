"""Insert the runs that a job has fired into a store other than the job's, with the verbs of the contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace as _with

from mainspring.core.instants import SECOND
from mainspring.core.run import Condition, Outcome, Run, Status
from mainspring.core.stored.settling import unclaimed
from mainspring.jobstores.base import JobStore

__all__ = ["add_fired", "as_waiting"]

_UNCLAIMABLE_US: Final = 10 * 365 * 86400 * SECOND
"""Postpone a record by this long, so that no node claims it before it is finished."""


def as_waiting(run: Run) -> Run:
    """Return a fired run as one that waits, marked with its token, if it has one; its predecessors may block it."""
    return _with(unclaimed(run), token=run.token)


def add_fired(store: JobStore, runs: Sequence[Run], missed: Sequence[Run], lease: float) -> list[bool]:
    """Insert the runs fired by a job in another store; return for each run whether this call inserted it.

    This treats runs as `fire` does, in a few round trips, and is safe to repeat. A known id changes nothing. A run that
    is already claimed is leased for `lease` seconds, and counts as inserted only then. Finished records are added, or
    replaced by longer ones. A missed record is counted again each time it gets longer. A record that was deleted within
    the last hour does not come back.
    """
    ids = [run.id for run in (*runs, *missed)]
    before = dict(zip(ids, store.get_runs(ids), strict=True))
    claimed = [run for run in runs if run.status is Status.RUNNING]
    now = store.beat() if claimed or missed else 0
    # Claimed runs first wait, marked with their token: a node that claims one in between removes the mark.
    waiting = [as_waiting(run) for run in runs]
    aside = [_with(run, status=Status.PENDING, run_at=now + _UNCLAIMABLE_US, finished_at=None) for run in missed]
    new = [run for run in (*waiting, *aside) if before[run.id] is None]
    if new:
        store.add_runs(new)
    until = now + int(lease * SECOND)
    leased = [_with(run, lease_until=until) for run in claimed if before[run.id] is None]
    outcomes = [Outcome(run, Condition.WAITING) for run in leased]
    for run in missed:
        known = before[run.id]
        if known is None or (known.status is Status.PENDING and known.run_at > now + _UNCLAIMABLE_US // 2):
            outcomes.append(Outcome(run, Condition.WAITING))
        elif known.count < run.count:
            outcomes.append(Outcome(run, Condition.FINISHED))
    settled = store.settle(outcomes) if outcomes else []
    held = {each.run.id for each, done in zip(outcomes, settled, strict=True) if done}
    plain = [run.id for run in runs if run.status is not Status.RUNNING and before[run.id] is None]
    # A remembered id, of a run deleted within the last hour, was not inserted.
    stored = {run_id for run_id, found in zip(plain, store.standings(plain), strict=True) if found is not None}
    return [run.id in held or run.id in stored for run in runs]
