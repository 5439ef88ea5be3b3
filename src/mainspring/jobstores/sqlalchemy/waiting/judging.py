"""Decide what one `settle` writes. `RunVerbs.settle` locks and reads the runs, a `Judgement` decides, `settle` writes.

The judgement takes the outcomes in their order, because each may rest on an earlier one of the same call:

1. `judge` asks for each outcome whether its condition holds for the run, as the store or an earlier outcome left it.
   The rules are those of all stores: `core.stored.settling.holds`.
2. If it holds, `judge` notes the new record and what follows from it. The run may end, leave its gate, or be sent back.
3. `place_sent_back` then judges the runs that were sent back by their predecessors: now all new statuses are known.

Nothing here executes a statement. Each field of a `Judgement` is the work of one statement in `settle`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.run import Condition
from mainspring.core.stored.edges import merged
from mainspring.core.stored.settling import holds, is_sent_back
from mainspring.jobstores.records.rows import FINAL_VALUES, RunRow, SettleRow, gate_of
from mainspring.jobstores.sqlalchemy.transaction import Row
from mainspring.jobstores.sqlalchemy.waiting.edges import Edge, judged, placed

__all__ = ["LOCKED_COLUMNS", "LONGEST_LEASE_US", "Judgement", "LockedRun", "locked_runs", "to_lock"]

LONGEST_LEASE_US: Final = 7 * 86400 * SECOND
"""No lease is longer than this; a later end was altered."""
LOCKED_COLUMNS: Final = (
    "id", "status", "token", "lease_until", "cancelling", "followed", "unique_key", "waits", "refused", "gate",
    "at_gate",
)  # fmt: skip
"""The columns that `settle` reads of each run that it locks: the id, and the fields of `LockedRun`."""
_GATE_KNOWN: Final = (Condition.WAITING, Condition.REFUSED, Condition.FINISHED)
"""The conditions of outcomes that were made from a whole record, and so know the gate of the run.

The holder of a claim may not know it: a claim does not read the gate of a run that stands at none, as a refused one.
"""
_WAITING: Final = frozenset(["blocked", "pending"])


class LockedRun(msgspec.Struct):
    """A locked run: as stored at first, then as the outcomes accepted so far have left it.

    `waits`, `gate` and `at_gate` stay as stored.
    """

    status: str
    token: str | None
    lease_until: int | None
    cancelling: bool
    followed: int
    unique: str | None
    waits: int
    refused: str | None
    gate: str | None
    at_gate: str | None


def to_lock(outcomes: Sequence[SettleRow]) -> set[str]:
    """Return the ids of the runs to lock: those of the outcomes, and those that a run sent back comes after."""
    ids = {each.run.id for each in outcomes}
    for each in outcomes:
        if each.run.after and each.run.status in _WAITING:
            ids.update(after.id for after in each.run.after)
    return ids


def locked_runs(rows: Iterable[Sequence[Any]], now: int) -> dict[str, LockedRun]:
    """Build the locked runs from rows that begin with the values of LOCKED_COLUMNS."""
    runs = {row[0]: LockedRun(*row[1 : len(LOCKED_COLUMNS)]) for row in rows}
    for run in runs.values():
        if run.lease_until is not None and run.lease_until > now + LONGEST_LEASE_US:
            run.lease_until = None  # it was altered, and counts as over
    return runs


class Judgement:
    """The writes of one `settle`: call `judge` for each outcome, then `place_sent_back`, and write the fields."""

    def __init__(self, locked: dict[str, LockedRun], holders: dict[str, str], now: int) -> None:
        self._locked, self._holders, self._now = locked, holders, now
        self._ended: set[str] = set()
        """The runs that this call ends."""
        self._gated: set[str] = set()
        """The runs whose gate may have changed."""
        self.answers: list[bool] = []
        """Whether each outcome is written."""
        self.written: dict[str, RunRow] = {}
        """The new records, by the id of the run."""
        self.totals: Counter[str] = Counter()
        """How many runs have reached each final status."""
        self.refused_by: dict[str, str] = {}
        """The runs that end because this same call has ended another run, each with the id of that other run."""
        self.sent_back: dict[str, bool] = {}
        """The runs that are sent back, and whether each had ended; if so, the edges from it are deleted, too."""
        self.new_edges: list[Edge] = []
        """The edges to the runs that are sent back."""
        self.refused_again: list[str] = []
        """The runs that are sent back and refused at once."""
        self.followed_ends: dict[str, str] = {}
        """The runs that this call ends and other runs come after, each with its new status."""
        self.freed: Counter[str] = Counter()
        """How many runs have left each gate."""
        self.follow_ups: list[RunRow] = []
        """The runs to add."""

    def judge(self, outcome: SettleRow) -> None:
        """Accept an outcome if its condition holds, and note its consequences."""
        run = outcome.run
        stored = self._locked.get(run.id)
        ends = run.status in FINAL_VALUES
        accepted = stored is not None and holds(outcome.condition, stored, run, self._now, self._ended)
        if accepted and run.unique is not None and not ends:
            accepted = self._holders.setdefault(run.unique, run.id) == run.id
        self.answers.append(accepted)
        if stored is None or not accepted:
            return
        if run.live is None and run.id in self.written:
            run.live = self.written[run.id].live
        if ends:
            self._note_end(outcome, stored)
        elif is_sent_back(stored, run):
            self.sent_back[run.id] = self.sent_back.get(run.id, False) or stored.status in FINAL_VALUES
            self.followed_ends.pop(run.id, None)
            stored.refused = None
        if run.gate is not None or (stored.gate is not None and outcome.condition in _GATE_KNOWN):
            run = self._judge_gate(run, stored)
        self.written[run.id] = run
        stored.status, stored.token, stored.lease_until = run.status, run.token, run.lease_until
        stored.cancelling = run.cancelling
        self.follow_ups += outcome.then

    def _note_end(self, outcome: SettleRow, stored: LockedRun) -> None:
        run = outcome.run
        self._ended.add(run.id)
        if outcome.condition is Condition.REFUSED and stored.refused is None and run.refused is not None:
            self.refused_by[run.id] = stored.refused = run.refused
        if stored.status != run.status:  # the same end may be written again, and counts once
            self.totals[run.status] += 1
        if stored.followed and stored.status not in FINAL_VALUES:
            self.followed_ends[run.id] = run.status

    def _judge_gate(self, run: RunRow, stored: LockedRun) -> RunRow:
        """Note if a run leaves its gate; return its record, no longer parked if it changes its gate or is put off."""
        self._gated.add(run.id)
        if run.id not in self.sent_back:  # the store, not the outcome, knows these
            run = replace(run, waits=stored.waits, refused=stored.refused)
        gate = stored.at_gate
        if gate is None:
            return run
        stops = stored.status == "running" and run.status != "running"
        leaves = stored.status not in FINAL_VALUES and (run.status in FINAL_VALUES or run.gate != gate)
        if stops or leaves:
            self.freed[gate] += 1
        parked = run.status == "blocked" and run.id not in self.sent_back
        return replace(run, status="pending") if parked and (run.gate != gate or run.run_at > self._now) else run

    def place_sent_back(self) -> None:
        """Judge the runs that are sent back by the new statuses of their predecessors."""
        statuses = {run_id: run.status for run_id, run in self._locked.items()} if self.sent_back else {}
        for run_id in self.sent_back:
            run = self.written[run_id]
            if run.status == "blocked":
                masks = merged(run.after)
                waits, refusing = judged(masks, statuses)
                self.written[run_id] = placed(run, waits, refusing, self._now)
                self.new_edges += [(pred, run_id, mask) for pred, mask in masks.items() if pred in statuses]
                self.refused_again += [run_id] if refusing is not None else []
            elif run.status == "pending":
                self.written[run_id] = replace(run, waits=0, refused=None)

    def gate_rows(self) -> list[Row]:
        """Return the id, `gate`, `gate_spec` and `at_gate` of each run whose gate has changed."""
        rows = []
        for run_id in sorted(self._gated):
            run, stored = self.written[run_id], self._locked[run_id]
            at_gate = gate_of(run)
            if (run.gate, at_gate) != (stored.gate, stored.at_gate) or run_id in self.sent_back:
                rows.append((run_id, run.gate, run.gate_spec, at_gate))
        return rows
