"""Make the next record of a stored run that is claimed, extended or settled. Every store of runs uses these. Pure."""

from __future__ import annotations

from collections.abc import Container
from typing import Final, Protocol

from msgspec.structs import replace

from mainspring.core.run import FINAL, UNTIL_START_PREFIX, Beat, Condition, Outcome, Run, Status

__all__ = ["LOG_LINES", "StoredRun", "claimed", "extended", "holds", "is_sent_back", "settled", "unclaimed"]

LOG_LINES: Final = 1000
"""Keep this many of the last lines of a run's log."""

# Module names, since reading a member from its class takes three times as long in the hot loops.
_BLOCKED, _PENDING, _RUNNING = Status.BLOCKED, Status.PENDING, Status.RUNNING
_HELD, _EXPIRED, _FINISHED, _REFUSED = Condition.HELD, Condition.EXPIRED, Condition.FINISHED, Condition.REFUSED


class StoredRun(Protocol):
    """The fields of a run, or of its row, that decide whether an outcome may be written."""

    @property
    def status(self) -> str:
        """Its status."""

    @property
    def token(self) -> str | None:
        """The token of its last claim."""

    @property
    def lease_until(self) -> int | None:
        """When its lease ends."""

    @property
    def cancelling(self) -> bool:
        """Whether somebody has asked to stop it."""

    @property
    def refused(self) -> str | None:
        """The predecessor whose end refused it."""


def claimed(run: Run, node: str, token: str, now: int, until: int) -> Run:
    """Return a run after a claim, which ends a unique key that holds only until then."""
    key = run.unique
    return replace(
        run,
        status=_RUNNING,
        attempt=run.attempt + 1,
        node=node,
        token=token,
        lease_until=until,
        started_at=now,
        unique=None if key is not None and key.startswith(UNTIL_START_PREFIX) else key,
    )


def unclaimed(run: Run) -> Run:
    """Return a fired run, which its step has claimed, as one that waits in its queue."""
    return replace(run, status=_PENDING, attempt=0, node=None, token=None, lease_until=None, started_at=None)


def extended(run: Run, beat: Beat, until: int) -> Run:
    """Return a run with a longer lease and the progress, data and log lines of the heartbeat."""
    return replace(
        run,
        lease_until=until,
        progress=run.progress if beat.progress is None else beat.progress,
        data=run.data if beat.data is None else beat.data,
        log=(*run.log, *beat.log)[-LOG_LINES:] if beat.log else run.log,
    )


def holds(condition: Condition, stored: StoredRun, run: StoredRun, now: int, ended: Container[str | None]) -> bool:
    """Return True if an outcome `run` may be written over the stored run.

    `ended` are the runs that this call has ended. The store itself checks that no other run has the unique key.
    """
    old, new = stored.status, run.status
    if stored.token != run.token:
        return False
    if old == _RUNNING:
        if stored.cancelling and new not in FINAL:  # the person who cancelled it was promised that it ends
            return False
        return condition is _HELD or (condition is _EXPIRED and (stored.lease_until or 0) <= now)
    if old in FINAL or condition is _FINISHED:
        return old in FINAL and condition is _FINISHED
    if condition is _REFUSED:
        return stored.refused is not None or run.refused in ended
    if condition is not Condition.WAITING:
        return False
    if old == new or new in FINAL:
        return True
    # Either a fire takes a slot and starts the run, or a person sends it back to wait for the run that refused it.
    return old == _PENDING and (new == _RUNNING or stored.refused is not None)


def is_sent_back(stored: StoredRun, run: StoredRun) -> bool:
    """Return True if an outcome makes an ended or refused run wait again; the store then cuts the old edges."""
    if stored.status in FINAL:
        return run.status not in FINAL
    return run.status == _BLOCKED and stored.status == _PENDING


def settled(outcome: Outcome, stored: Run, now: int) -> Run:
    """Return the record to write for an outcome whose condition holds and that does not send the run back.

    The record keeps the fields of the stored run that the outcome does not know: what heartbeats reported, the counts
    of edges, and the run that refused it.
    """
    run, condition = outcome.run, outcome.condition
    if condition is _HELD and (stored.progress is not None or stored.data is not None or stored.log):
        run = replace(
            run,
            progress=stored.progress if run.progress is None else run.progress,
            data=stored.data if run.data is None else run.data,
            log=run.log or stored.log,
        )
    if stored.followed or stored.after or run.followed:
        refused = stored.refused or (run.refused if condition is _REFUSED else None)
        run = replace(run, waits=stored.waits, followed=stored.followed, refused=refused)
    if run.status is _BLOCKED and not run.waits:  # it was parked, and is now postponed or has left its gate
        postponed = stored.status is _BLOCKED and run.run_at > now
        run = replace(run, status=_PENDING) if postponed or run.gate != stored.gate else run
    return run
