"""Judge an outcome by the record that is stored. Pure."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from msgspec.structs import replace

from mainspring.core.run import Condition
from mainspring.jobstores.records.rows import FINAL_VALUES, RunRow, SettleRow
from mainspring.jobstores.run_records.edges import due_at, merged
from mainspring.jobstores.run_records.records import AGAIN, LINKED, RunRecord, new_version

__all__ = ["frees", "gate_of", "holds", "is_sent_back", "settled"]

_WAITING: Final = ("blocked", "pending")
_KEPT: Final = ("call", "owner", "created_at", "job_id", "group", "claimed_at")


def gate_of(row: RunRow) -> str | None:
    """Return the gate that a run stands at or has a slot of; none if it waits for runs, is refused or has ended."""
    return None if row.waits or row.refused is not None or row.status in FINAL_VALUES else row.gate


def holds(outcome: SettleRow, old: RunRow, ended: Container[str | None], now: int) -> bool:
    """Return True if the condition of an outcome holds; `ended` are the runs that the same call has ended."""
    run, condition, status = outcome.run, outcome.condition, old.status
    final = run.status in FINAL_VALUES
    if old.token != run.token or (old.cancelling and status == "running" and not final):
        return False
    if condition is Condition.HELD:
        return status == "running"
    if condition is Condition.EXPIRED:
        return status == "running" and (old.lease_until or 0) <= now
    if condition is Condition.FINISHED:
        return status in FINAL_VALUES
    if status not in _WAITING:
        return False
    if condition is Condition.REFUSED:
        return old.refused is not None or run.refused in ended
    if final or status == run.status:
        return True
    # To be written as blocked, a run that is pending must have been refused: then it is sent back.
    return status == "pending" and (run.status != "blocked" or old.refused is not None)


def is_sent_back(old: RunRow, run: RunRow) -> bool:
    """Return True if a run that has ended, or was refused, is to wait again."""
    if old.status in FINAL_VALUES:
        return run.status not in FINAL_VALUES
    return run.status == "blocked" and old.status == "pending"


def settled(outcome: SettleRow, record: RunRecord, now: int) -> RunRecord:
    """Return the next record of a run whose outcome is to be written."""
    old, run = record.row, outcome.run
    final = run.status in FINAL_VALUES
    kept = {name: getattr(old, name) for name in _KEPT}
    row = replace(run, **kept, live=old.live if run.live is None else run.live)
    then = [*record.then, *outcome.then]
    if is_sent_back(old, run):
        return _sent_back(record, replace(row, refused=None), now, then)
    refused = old.refused or (run.refused if outcome.condition is Condition.REFUSED else None)
    row = replace(row, refused=refused)
    if row.status == "blocked" and not record.open and row.gate != old.gate:  # parked, and out of its gate
        row = replace(row, status="pending")
    if row.status == old.status == "blocked" and not record.open and row.run_at > now:  # parked, and postponed
        row = replace(row, status="pending")
    ends = final and old.status not in FINAL_VALUES
    return replace(
        record,
        row=row,
        expires_at=None,
        open=() if final else record.open,
        unreleased=record.unreleased or (ends and bool(record.successors)),
        then=then,
        todo_at=None,
    )


def _sent_back(record: RunRecord, row: RunRow, now: int, then: list[RunRow]) -> RunRecord:
    """Return a run behind the runs that it came after, without those that came after its end."""
    masks = merged(row.after) if row.status == "blocked" else {}
    behind = {} if record.row.status in FINAL_VALUES else record.successors
    if not masks and row.status == "blocked":
        row = replace(row, status="pending", run_at=due_at(row.run_at, now))
    return RunRecord(
        row,
        0,
        after=masks,
        open=tuple(masks),
        mark=new_version() if masks else 0,
        link=AGAIN if masks else LINKED,
        successors=behind,
        then=then,
    )


def frees(old: RunRow, new: RunRow) -> str | None:
    """Return the gate that a run has left, or stopped to run in."""
    gate = gate_of(old)
    stopped = old.status == "running" and new.status != "running"
    gone = new.status in FINAL_VALUES or new.gate != gate
    return gate if gate is not None and (stopped or gone) else None
