"""Edges between the runs of the memory store: which run comes after which, and how an end affects the successors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from mainspring.core.run import FINAL, HOLDS, Run, Status, bit_of
from mainspring.core.stored.edges import check_edges, judge_after, refused_by, released
from mainspring.jobstores.memory.indexes import Record

__all__ = ["EdgeTable"]

_BITS: Final = {status: bit_of(status) for status in FINAL}
_BLOCKED = Status.BLOCKED


class EdgeTable:
    """Successors by predecessor, with their masks. `Run.after` leads the other way."""

    __slots__ = ("_masks", "_records")

    def __init__(self, records: Mapping[str, Record]) -> None:
        self._records = records
        self._masks: dict[str, dict[str, int]] = {}

    def check(self, runs: Iterable[Run]) -> None:
        """Raise ValueError if adding these runs would give a run too many predecessors or successors."""
        check_edges(runs, self._records, lambda run_id: len(self._masks.get(run_id, ())))

    def judged(self, run: Run, now: int, *, again: bool) -> Run | None:
        """Return a run with the status that its predecessors give it, or None if one of them does not exist.

        For a run that is judged `again`, a missing predecessor counts as satisfied.
        """
        found = [(after, self._records.get(after.id)) for after in run.after]
        there = [(after.id, after.on, record.run.status) for after, record in found if record is not None]
        return judge_after(run, there, now) if again or len(there) == len(found) else None

    def link(self, run: Run) -> None:
        """Add the edges to a run from those of its predecessors that exist."""
        for after in run.after:
            record = self._records.get(after.id)
            if record is not None:
                masks = self._masks.setdefault(after.id, {})
                masks[run.id] = after.on
                record.run = replace(record.run, followed=len(masks))

    def cut_before(self, run: Run) -> None:
        """Delete the edges to a run."""
        for after in run.after:
            masks = self._masks.get(after.id)
            if masks is None or masks.pop(run.id, None) is None:
                continue
            if not masks:
                del self._masks[after.id]
            record = self._records[after.id]
            record.run = replace(record.run, followed=len(masks))

    def cut_behind(self, run_id: str) -> None:
        """Delete the edges from a run."""
        self._masks.pop(run_id, None)

    def successors(self, run_id: str) -> list[Run]:
        """Return the runs that come after one."""
        return [self._records[each].run for each in self._masks.get(run_id, ())]

    def pinned(self, run_id: str) -> bool:
        """Return True if a run must be kept because of one of its successors."""
        return any(
            mask & HOLDS or self._records[each].run.status not in FINAL
            for each, mask in self._masks.get(run_id, {}).items()
        )

    def judge_ends(self, ended: Mapping[str, Status], now: int) -> Iterator[tuple[Record, Run]]:
        """Yield the blocked successors of ended runs, with their next records."""
        satisfied: dict[str, int] = {}
        refused: dict[str, str] = {}
        for run_id, status in ended.items():
            bit = _BITS[status]
            for each, mask in self._masks.get(run_id, {}).items():
                if mask & bit:
                    satisfied[each] = satisfied.get(each, 0) + 1
                else:
                    refused.setdefault(each, run_id)
        for each in dict.fromkeys((*satisfied, *refused)):
            record = self._records[each]
            run = record.run
            if run.status is not _BLOCKED:
                continue
            if each in refused:
                yield record, refused_by(run, refused[each], now)
            elif run.waits > satisfied[each]:
                yield record, replace(run, waits=run.waits - satisfied[each])
            else:
                yield record, released(run, now)
