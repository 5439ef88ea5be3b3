"""Judge the outcomes of one `settle`: which outcomes to write, which runs end or go back, and which runs follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.run import Condition
from mainspring.jobstores.records.rows import FINAL_VALUES, RunRow, SettleRow
from mainspring.jobstores.sqlalchemy.transaction import Row
from mainspring.jobstores.sqlalchemy.waiting.edges import Edge, judged, merged, placed
from mainspring.jobstores.sqlalchemy.waiting.gates import gate_of

__all__ = ["JUDGED", "LONGEST_LEASE_US", "Judgement", "WaitingState", "to_lock"]

LONGEST_LEASE_US: Final = 7 * 86400 * SECOND
"""No lease is longer than this; a later end was altered."""
JUDGED: Final = ("id", "status", "token", "lease_until", "cancelling", "followed", "unique_key")
"""The columns of a run that decide whether its outcome is written."""
_WAITING: Final = frozenset(["blocked", "pending"])


def to_lock(outcomes: Sequence[SettleRow]) -> set[str]:
    """Return the ids of the runs to lock: those of the outcomes, and those that a run sent back comes after."""
    ids = {each.run.id for each in outcomes}
    for each in outcomes:
        if each.run.after and each.run.status in _WAITING:
            ids.update(after.id for after in each.run.after)
    return ids


class WaitingState(NamedTuple):
    """The predecessor that has refused a run, the gate that the run names, and the gate that it stands at."""

    refused: str | None = None
    gate: str | None = None
    at_gate: str | None = None


_FREE: Final = WaitingState()


class Judgement:
    """The outcomes of one call, judged in their order."""

    def __init__(
        self, stored: dict[str, Row], holders: dict[str, str], states: dict[str, WaitingState], now: int
    ) -> None:
        self._stored, self._holders, self._states, self._now = stored, holders, states, now
        self._refused = {run_id for run_id, state in states.items() if state.refused is not None}
        self._blocked: set[str] = set()  # the runs that were blocked and may have a gate
        self._gated: set[str] = set()
        self.answers: list[bool] = []
        self.written: dict[str, RunRow] = {}
        self.back: dict[str, bool] = {}
        """The runs that are sent back, and whether each had ended; if so, the edges from it are deleted, too."""
        self.ended: dict[str, str] = {}
        """The followed runs that this call ends, with their new statuses."""
        self.causes: dict[str, str] = {}
        """The runs that end because this same call has ended another run, each with the id of that other run."""
        self.freed: Counter[str] = Counter()
        """How many runs have left each gate."""
        self.totals: Counter[str] = Counter()
        self.then: list[RunRow] = []
        self._closed: set[str] = set()

    def judge(self, outcome: SettleRow) -> None:
        """Accept an outcome if its condition holds, and note its consequences."""
        run = outcome.run
        before = self._stored.get(run.id)
        final = run.status in FINAL_VALUES
        accepted = before is not None and self._holds(outcome, before, final)
        if accepted and run.unique is not None and not final:
            accepted = self._holders.setdefault(run.unique, run.id) == run.id
        self.answers.append(accepted)
        if not accepted or before is None:
            return
        if run.live is None and run.id in self.written:
            run.live = self.written[run.id].live
        status, followed = before[0], before[4]
        if final:
            self._closed.add(run.id)
            if outcome.condition is Condition.REFUSED and run.id not in self._refused and run.refused is not None:
                self.causes[run.id] = run.refused
            if status != run.status:  # the same end may be written again, and counts once
                self.totals[run.status] += 1
            if followed and status not in FINAL_VALUES:
                self.ended[run.id] = run.status
        elif status in FINAL_VALUES or (run.status == "blocked" and status == "pending"):
            self.back[run.id] = self.back.get(run.id, False) or status in FINAL_VALUES
            self.ended.pop(run.id, None)
            self._refused.discard(run.id)
        if run.gate is not None or run.id in self._states:
            run = self._judge_gate(run, status, final)
        self.written[run.id] = run
        unique = None if final else run.unique
        self._stored[run.id] = (run.status, run.token, run.lease_until, run.cancelling, followed, unique)
        self.then += outcome.then

    def _holds(self, outcome: SettleRow, stored: Row, final: bool) -> bool:
        condition, run = outcome.condition, outcome.run
        status, present, lease_until, cancelling, _, _ = stored
        if present != run.token or (cancelling and status == "running" and not final):
            return False
        if condition is Condition.HELD:
            return bool(status == "running")
        if condition is Condition.EXPIRED:
            return bool(status == "running" and not self._now < (lease_until or 0) <= self._now + LONGEST_LEASE_US)
        if condition is Condition.FINISHED:
            return status in FINAL_VALUES
        if status not in _WAITING:
            return False
        if condition is Condition.REFUSED:
            return run.id in self._refused or run.refused in self._closed
        if final or status == run.status:
            return True
        # A pending run may become blocked only if it was refused: then it is sent back.
        return bool(status == "pending" and (run.status != "blocked" or run.id in self._refused))

    def _judge_gate(self, run: RunRow, status: str, final: bool) -> RunRow:
        """Note if a run leaves its gate; return the run, but do not park it if it changes its gate or is put off."""
        if run.id not in self._gated:
            self._gated.add(run.id)
            self._blocked |= {run.id} if status == "blocked" else set()
        gate = self._states.get(run.id, _FREE).at_gate
        if gate is None:
            return run
        stopped = status == "running" and run.status != "running"
        gone = (final or run.gate != gate) and status not in FINAL_VALUES
        if gone or stopped:
            self.freed[gate] += 1
        parked = run.status == "blocked" and run.id not in self.back
        return replace(run, status="pending") if parked and (run.gate != gate or run.run_at > self._now) else run

    def gates(self) -> list[Row]:
        """Return the id, `gate`, `gate_spec` and `at_gate` of each run whose gate may have changed."""
        rows = []
        for run_id in sorted(self._gated):
            run, state = self.written[run_id], self._states.get(run_id, _FREE)
            at_gate = gate_of(run)
            if run_id not in self.back:
                waits = run_id in self._blocked and state.at_gate is None
                refused = state.refused is not None or run_id in self.causes
                at_gate = None if waits or refused or run.status in FINAL_VALUES else run.gate
            if (run.gate, at_gate) != (state.gate, state.at_gate) or run_id in self.back:
                rows.append((run_id, run.gate, run.gate_spec, at_gate))
        return rows

    def place_back(self) -> tuple[list[Edge], list[str]]:
        """Judge the runs that are sent back by the new statuses of all runs; return their edges, and the refused."""
        statuses: Mapping[str, str] = {run_id: row[0] for run_id, row in self._stored.items()}
        edges: list[Edge] = []
        refused = []
        for run_id in self.back:
            run = self.written[run_id]
            if run.status == "blocked":
                masks = merged(run.after)
                waits, refusing = judged(masks, statuses)
                self.written[run_id] = placed(run, waits, refusing, self._now)
                edges += [(pred, run_id, mask) for pred, mask in masks.items() if pred in statuses]
                refused += [run_id] if refusing is not None else []
            elif run.status == "pending":
                self.written[run_id] = replace(run, waits=0, refused=None)
        return edges, refused
