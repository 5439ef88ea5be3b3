"""The next record of a stored run: claimed, kept alive, settled. Every store that holds runs decides by these. Pure."""

from __future__ import annotations

from collections.abc import Container
from typing import Final, Protocol

from msgspec.structs import replace

from mainspring.core.run import FINAL, Beat, Condition, Outcome, Run, Status

__all__ = ["LOG_LINES", "StoredRun", "claimed", "extended", "holds", "is_sent_back", "settled"]

LOG_LINES: Final = 1000
"""Keep this many lines of a run's log, the last ones."""

# Reading a member off its class takes three times as long in the hot loops.
_BLOCKED, _PENDING, _RUNNING = Status.BLOCKED, Status.PENDING, Status.RUNNING
_HELD, _EXPIRED, _FINISHED, _REFUSED = Condition.HELD, Condition.EXPIRED, Condition.FINISHED, Condition.REFUSED


class StoredRun(Protocol):
    """A run, or a row of one: as much of it as an outcome is judged by."""

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
        """Whether it is marked to be stopped."""

    @property
    def refused(self) -> str | None:
        """The run that refused it."""


def claimed(run: Run, node: str, token: str, now: int, until: int) -> Run:
    """Return a run as its claim leaves it; a unique key that begins with `>` is given up."""
    key = run.unique
    return replace(
        run,
        status=_RUNNING,
        attempt=run.attempt + 1,
        node=node,
        token=token,
        lease_until=until,
        started_at=now,
        unique=None if key is not None and key.startswith(">") else key,
    )


def extended(run: Run, beat: Beat, until: int) -> Run:
    """Return a run with a longer lease and what its holder reports."""
    return replace(
        run,
        lease_until=until,
        progress=run.progress if beat.progress is None else beat.progress,
        data=run.data if beat.data is None else beat.data,
        log=(*run.log, *beat.log)[-LOG_LINES:] if beat.log else run.log,
    )


def holds(condition: Condition, stored: StoredRun, run: StoredRun, now: int, ended: Container[str | None]) -> bool:
    """Return True if an outcome `run` may be written over the stored run.

    `ended` are the runs that this call has ended. Whether another run has its unique key is for the store to find out.
    """
    old, new = stored.status, run.status
    if stored.token != run.token:
        return False
    if old == _RUNNING:
        if stored.cancelling and new not in FINAL:  # whoever cancelled it was told that it ends
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
    # A fire into a slot starts it, or a person sends it back behind the run that has refused it.
    return old == _PENDING and (new == _RUNNING or stored.refused is not None)


def is_sent_back(stored: StoredRun, run: StoredRun) -> bool:
    """Return True if a run that has ended, or was refused, is to wait again: it loses its edges."""
    if stored.status in FINAL:
        return run.status not in FINAL
    return run.status == _BLOCKED and stored.status == _PENDING


def settled(outcome: Outcome, stored: Run, now: int) -> Run:
    """Return the record to write for an outcome that holds, unless it sends the run back.

    Of the stored run it keeps what the outcome does not know: reports of heartbeats, edges, who refused it.
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
    if run.status is _BLOCKED and not run.waits:  # it is parked, and now postponed or out of its gate
        postponed = stored.status is _BLOCKED and run.run_at > now
        run = replace(run, status=_PENDING) if postponed or run.gate != stored.gate else run
    return run
