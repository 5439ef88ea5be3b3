"""Gates in SQL: lock them, count their runs, unpark runs, and set the limits of gates and queues.

A claim parks a run for which its gate has no free slot: the run becomes blocked. When a run leaves the gate, `let_in`
unparks the next run of each lane: it becomes pending, and a claim judges it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mainspring.core.waiting.gates import QUEUE_GATE, GateState, room
from mainspring.jobstores.sqlalchemy.waiting.edges import EdgeVerbs

__all__ = ["GateVerbs", "forget_gates", "set_gate"]

_STATE: Final = "SELECT id, allowed, tat, line FROM {limits} WHERE id {in} ORDER BY id"
_RUNNING: Final = (
    "SELECT at_gate, count(*) FROM {runs} WHERE at_gate {in} AND at_gate IS NOT NULL AND status = 'running'"
    " GROUP BY at_gate"
)
_IDLE: Final = "SELECT id FROM {limits} WHERE allowed IS NULL AND tat <= ? ORDER BY tat LIMIT ? {skip}"
_USED: Final = "SELECT DISTINCT at_gate FROM {runs} WHERE at_gate {in} AND at_gate IS NOT NULL"
_PARKED_SPECS: Final = "SELECT DISTINCT gate_spec FROM {runs} WHERE status = 'blocked' AND at_gate = ?"
_PARKED_LANE: Final = (
    "SELECT lane FROM {runs} WHERE status = 'blocked' AND at_gate = ? AND lane > ? ORDER BY lane LIMIT 1"
)
_PARKED: Final = (
    "SELECT id FROM {runs} WHERE status = 'blocked' AND at_gate = ? AND lane = ?"
    " ORDER BY priority DESC, run_at LIMIT ? {lock}"
)
MOST_PARKED: Final = 1_000_000
"""Unpark at most this many runs when a limit is lifted."""


class GateVerbs(EdgeVerbs):
    """The verbs that lock gates, count their runs and unpark runs, in statements that every dialect has."""

    def lock_gates(self, names: Iterable[str], *, wait: bool) -> dict[str, GateState]:
        """Lock gates, and create the missing ones; without `wait`, leave out the gates that others have locked."""
        wanted = sorted(set(names))
        found = self.all(f"{_STATE} {'{lock}' if wait else '{skip}'}", self.many(wanted))
        states = {name: GateState(allowed, tat, line) for name, allowed, tat, line in found}
        left = [name for name in wanted if name not in states]
        if left:
            there = {name for (name,) in self.all("SELECT id FROM {limits} WHERE id {in}", self.many(left))}
            # If another transaction has just made the same gate, this one collides with it and begins again.
            new = [name for name in left if name not in there]
            self.insert("limits", ("id", "tat", "line"), [(name, 0, 0) for name in new])
            states |= {name: GateState() for name in new}
        return states

    def running(self, gates: Iterable[str]) -> Counter[str]:
        """Count the running runs of locked gates; a statement after the lock sees all runs that others have started."""
        names = sorted(gates)
        return Counter(dict(self.all(_RUNNING, self.many(names)))) if names else Counter()

    def let_in(self, freed: Mapping[str, int]) -> None:
        """Lock gates, and for each run that has left one, unpark one run of each lane.

        Wait for any claim that has locked one of these gates: this call must see the runs that the claim parks.
        """
        self.lock_gates(freed, wait=True)
        self.unpark(freed)

    def unpark(self, numbers: Mapping[str, int]) -> None:
        """Unpark up to `numbers[gate]` runs of each lane of a locked gate; they go to the tail of their lane."""
        places = self.parked_lanes(sorted(numbers))
        self.make_pending(self.parked([(gate, lane, numbers[gate]) for gate, lane in places]))

    def make_pending(self, ids: list[str]) -> None:
        """Make locked parked runs pending: a claim will judge them again."""
        if ids:
            self.run("UPDATE {runs} SET status = 'pending', run_at = ? WHERE id {in}", self.now, self.many(sorted(ids)))
            self.stirred = True

    def parked_lanes(self, gates: Sequence[str]) -> list[tuple[str, str]]:
        """Return each gate with each lane that has parked runs of it; read only one row for each pair."""
        found: list[tuple[str, str]] = []
        for gate in gates:
            lane = ""
            while row := self.one(_PARKED_LANE, gate, lane):
                lane = row[0]
                found.append((gate, lane))
        return found

    def parked(self, wanted: Sequence[tuple[str, str, int]]) -> list[str]:
        """Lock the wanted number of parked runs of each gate and lane, higher priority first, then older.

        Wait for the locks: a run that is skipped here might never come back.
        """
        return [run_id for each in wanted for (run_id,) in self.all(_PARKED, *each)]


def set_gate(tx: GateVerbs, name: str, allowed: int | None) -> None:
    """Set or lift the limit of a gate or a queue; unpark as many runs of the gate as fit."""
    tx.stirred = True
    if name.startswith(QUEUE_GATE):
        queue = name.removeprefix(QUEUE_GATE)
        tx.run("DELETE FROM {queues} WHERE name = ?", queue)
        if allowed is not None:
            tx.insert("queues", ("name", "allowed"), [(queue, allowed)])
        return
    tx.lock_gates([name], wait=True)
    tx.run("UPDATE {limits} SET allowed = ? WHERE id = ?", allowed, name)
    parked = [spec for (spec,) in tx.all(_PARKED_SPECS, name)] if allowed is None else ()
    free = min(room(allowed, parked, tx.running([name])[name]), MOST_PARKED)
    if free:
        tx.unpark({name: free})


def forget_gates(tx: GateVerbs, limit: int) -> None:
    """Delete gates that no person has limited and no run uses; keep a rate until its next start is due."""
    idle = [name for (name,) in tx.all(_IDLE, tx.now, limit)]
    if idle:
        used = {name for (name,) in tx.all(_USED, tx.many(idle))}
        left = [name for name in idle if name not in used]
        if left:
            tx.run("DELETE FROM {limits} WHERE id {in}", tx.many(sorted(left)))
