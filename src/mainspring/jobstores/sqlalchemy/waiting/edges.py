"""Edges between runs in SQL: judge a run by its predecessors, release or refuse its successors, delete edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from mainspring.core.run import HOLDS, bit_of
from mainspring.core.stored.edges import check_number, due_at, merged
from mainspring.jobstores.records.rows import FINAL_VALUES, RunRow
from mainspring.jobstores.sqlalchemy.transaction import Row, Set, Tx

__all__ = ["Edge", "EdgeVerbs", "Placement", "judged", "pinned", "placed"]

Edge = tuple[str, str, int]
"""A run, its successor, and the mask of those ends of the run that let the successor start."""

_EDGES: Final = ("pred", "succ", "mask")
_FROM_ENDED: Final = "FROM {edges} WHERE pred {in}"
_WAITING: Final = "FROM {runs} WHERE id {in} AND status = 'blocked' AND waits > 0 ORDER BY id {lock}"
_RELEASED: Final = ("status", "waits", "run_at", "at_gate")
_REFUSED: Final = ("status", "waits", "run_at", "refused", "at_gate")
_MORE: Final[tuple[Set, ...]] = (("followed", "{old} + {new}"),)
_LESS: Final[tuple[Set, ...]] = (("followed", "CASE WHEN {old} > {new} THEN {old} - {new} ELSE 0 END"),)
_PREDECESSORS: Final = "SELECT pred, count(*) FROM {edges} WHERE succ {in} GROUP BY pred"
_PINNED: Final = (
    "SELECT DISTINCT e.pred FROM {edges} e JOIN {runs} s ON s.id = e.succ"
    f" WHERE e.pred {{in}} AND (s.expires_at IS NULL OR (e.mask & {HOLDS}) <> 0)"
)


def judged(masks: Mapping[str, int], statuses: Mapping[str, str]) -> tuple[int, str | None]:
    """Return how many predecessors have not ended, and which one refuses the run; a deleted one does neither."""
    waits = 0
    for pred, mask in masks.items():
        status = statuses.get(pred)
        if status in FINAL_VALUES:
            if not mask & bit_of(status):
                return 0, pred
        elif status is not None:
            waits += 1
    return waits, None


def placed(run: RunRow, waits: int, refused: str | None, now: int) -> RunRow:
    """Return a waiting run as its predecessors leave it: blocked, pending, or refused and due at once."""
    run_at = run.run_at if waits else now if refused is not None else due_at(run.run_at, now)
    status = "blocked" if waits else "pending"
    return replace(run, status=status, waits=waits, refused=refused, run_at=run_at)


class Placement:
    """A judge of runs to add: it looks at each in turn and decides by its predecessors how it is stored."""

    def __init__(self, stored: Mapping[str, tuple[str, int]], now: int) -> None:
        self._statuses = {run_id: status for run_id, (status, _) in stored.items()}
        self._followed = Counter({run_id: followed for run_id, (_, followed) in stored.items()})
        self._now = now
        self.edges: list[Edge] = []
        self.refused: list[str] = []

    def judge(self, run: RunRow) -> RunRow | None:
        """Return a run as it must be stored; None if one of its predecessors does not exist."""
        masks = merged(run.after)
        check_number(len(masks), f"run {run.id!r} comes after")
        if not masks.keys() <= self._statuses.keys():
            return None
        if run.status in ("blocked", "pending"):
            run = placed(run, *judged(masks, self._statuses), self._now)
        for pred, mask in masks.items():
            self._followed[pred] += 1
            check_number(self._followed[pred], f"run {pred!r} is followed by")
            self.edges.append((pred, run.id, mask))
        if run.refused is not None:
            self.refused.append(run.id)
        self._statuses[run.id] = run.status
        return run

    def counted(self, run: RunRow) -> RunRow:
        """Return a judged run with the number of its successors."""
        followed = self._followed[run.id]
        return replace(run, followed=followed) if followed else run


def pinned(tx: Tx, run_ids: list[str]) -> set[str]:
    """Return which of these locked runs must be kept because their successors still need them."""
    return {run_id for (run_id,) in tx.all(_PINNED, tx.many(run_ids))} if run_ids else set()


class EdgeVerbs(Tx):
    """The verbs that add, judge and delete edges, in statements that every dialect has."""

    def predecessors(self, ids: Iterable[str]) -> dict[str, tuple[str, int]]:
        """Lock runs so that they cannot end before an edge from them is stored; return status and `followed` of each.

        Always lock in the order of the ids, so that two callers do not deadlock.
        """
        wanted = sorted(ids)
        if not wanted:
            return {}
        found = self.all("SELECT id, status, followed FROM {runs} WHERE id {in} ORDER BY id {lock}", self.many(wanted))
        return {run_id: (status, followed) for run_id, status, followed in found}

    def add_edges(self, edges: Sequence[Edge], stored: Iterable[str]) -> None:
        """Insert edges; add them to the `followed` of their predecessors in `stored`."""
        if edges:
            self.insert("edges", _EDGES, sorted(edges))
            number = Counter(pred for pred, _, _ in edges)
            self.update("runs", _MORE, [(pred, number[pred]) for pred in sorted(stored) if pred in number])

    def release(self, ended: Mapping[str, str]) -> None:
        """Judge the edges from ended runs: refuse a successor, or release it if it waits for no other run.

        This must be a later statement than the one that ends the runs: only then does it see every edge from them.
        """
        satisfied: Counter[str] = Counter()
        refusing: dict[str, str] = {}
        edges = self.table(_EDGES, _FROM_ENDED, self.many(sorted(ended)))
        for pred, succ, mask in edges:
            if mask & bit_of(ended[pred]):
                satisfied[succ] += 1
            else:
                refusing[succ] = min(pred, refusing.get(succ, pred))
        if not edges:
            return
        now = self.now
        behind = self.many(sorted(satisfied.keys() | refusing.keys()))
        waiting = self.table(("id", "waits", "run_at", "gate"), _WAITING, behind)
        released: list[Row] = []
        refused: list[Row] = []
        for run_id, waits, run_at, gate in waiting:
            if run_id in refusing:
                refused.append((run_id, "pending", 0, now, refusing[run_id], None))
            elif waits > satisfied[run_id]:
                released.append((run_id, "blocked", waits - satisfied[run_id], run_at, None))
            else:
                released.append((run_id, "pending", 0, max(now, due_at(run_at, now)), gate))
        self.update("runs", _RELEASED, released)
        self.update("runs", _REFUSED, refused)
        self.note_released((row[0] for row in refused), any(row[1] == "pending" for row in released))

    def note_released(self, refused: Iterable[str], released: bool) -> None:
        """Note which runs were refused; wake sleepers if any run was refused or released, since it can be claimed."""
        before = len(self.refused)
        self.refused += refused
        self.stirred |= released or len(self.refused) > before

    def forget_edges(self, run_ids: list[str], kept: Iterable[str] = ()) -> None:
        """Delete the edges to these runs, and the edges from them except from those in `kept`."""
        leaving = sorted(set(run_ids).difference(kept))
        if leaving:
            self.run("DELETE FROM {edges} WHERE pred {in}", self.many(leaving))
        those = self.many(run_ids)
        number: dict[str, int] = dict(self.all(_PREDECESSORS, those))
        if not number:
            return
        self.run("DELETE FROM {edges} WHERE succ {in}", those)
        # Do not wait for a run that another transaction has locked: a count that is too high only costs time.
        free = self.all("SELECT id FROM {runs} WHERE id {in} ORDER BY id {skip}", self.many(sorted(number)))
        self.update("runs", _LESS, [(pred, number[pred]) for (pred,) in free])
