"""Compute the next record of a run from the stored record and an outcome. Pure."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from mainspring.core.run import Condition
from mainspring.core.stored.edges import due_at, merged
from mainspring.core.stored.settling import is_sent_back
from mainspring.jobstores.records.rows import FINAL_VALUES, RunRow, SettleRow, gate_of, new_version
from mainspring.jobstores.run_records.records import AGAIN, LINKED, RunRecord

__all__ = ["frees", "settled"]

_KEPT: Final = ("call", "owner", "created_at", "job_id", "group", "claimed_at")


def settled(outcome: SettleRow, record: RunRecord, now: int) -> RunRecord:
    """Return the next record of a run; the caller has checked that the outcome holds."""
    old, run = record.row, outcome.run
    final = run.status in FINAL_VALUES
    kept = {name: getattr(old, name) for name in _KEPT}
    row = replace(run, **kept, live=old.live if run.live is None else run.live)
    then = [*record.then, *outcome.then]
    if is_sent_back(old, run):
        return _sent_back(record, replace(row, refused=None), now, then)
    refused = old.refused or (run.refused if outcome.condition is Condition.REFUSED else None)
    row = replace(row, refused=refused)
    if row.status == "blocked" and not record.open and row.gate != old.gate:  # it was parked, and leaves its gate
        row = replace(row, status="pending")
    if row.status == old.status == "blocked" and not record.open and row.run_at > now:  # it was parked, now postponed
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
    """Return the record of a run that is sent back: behind its predecessors, without successors if it had ended."""
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
    """Return the gate whose slot or waiting line this change leaves; None if there is none."""
    gate = gate_of(old)
    stopped = old.status == "running" and new.status != "running"
    gone = new.status in FINAL_VALUES or new.gate != gate
    return gate if gate is not None and (stopped or gone) else None
