"""Edges between the runs of the memory store: which run comes after which, and what an end does to those after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from mainspring.core.run import FINAL, HOLDS, Run, Status, bit_of
from mainspring.jobstores.memory.indexes import Record

__all__ = ["EdgeTable"]

MOST_EDGES: Final = 1000
"""A run has at most this many predecessors, and at most this many successors."""

_BITS: Final = {status: bit_of(status) for status in FINAL}
_BLOCKED, _PENDING = Status.BLOCKED, Status.PENDING


class EdgeTable:
    """Successors by predecessor, with their masks. `Run.after` leads the other way."""

    __slots__ = ("_masks", "_records")

    def __init__(self, records: Mapping[str, Record]) -> None:
        self._records = records
        self._masks: dict[str, dict[str, int]] = {}

    def check(self, runs: Iterable[Run]) -> None:
        """Raise ValueError if a run would have too many predecessors or successors once these are added."""
        successors: dict[str, int] = {}
        for run in runs:
            if not run.after or run.id in self._records:
                continue
            if len(run.after) > MOST_EDGES:
                raise ValueError(f"run {run.id!r} comes after {len(run.after)} runs; at most {MOST_EDGES} are allowed")
            for after in run.after:
                successors[after.id] = number = successors.get(after.id, 0) + 1
                if number + len(self._masks.get(after.id, ())) > MOST_EDGES:
                    raise ValueError(f"run {after.id!r} would have more than {MOST_EDGES} successors")

    def judged(self, run: Run, now: int, *, again: bool) -> Run | None:
        """Return a run as its predecessors let it be stored, or None if one of them is not there.

        For a run that is judged `again`, one that is not there counts as satisfied.
        """
        waits, refused = 0, None
        for after in run.after:
            record = self._records.get(after.id)
            if record is None:
                if again:
                    continue
                return None
            bit = _BITS.get(record.run.status)
            if bit is None:
                waits += 1
            elif not after.on & bit and refused is None:
                refused = after.id
        if refused is not None:
            return _refused(run, refused, now)
        if waits:
            return replace(run, status=_BLOCKED, waits=waits)
        return replace(run, status=_PENDING, run_at=now - run.run_at if run.run_at < 0 else run.run_at)

    def link(self, run: Run) -> None:
        """Add the edges to a run from those of its predecessors that are there."""
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
        """Return True if a run must be kept for one that comes after it."""
        return any(
            mask & HOLDS or self._records[each].run.status not in FINAL
            for each, mask in self._masks.get(run_id, {}).items()
        )

    def judge_ends(self, ended: Mapping[str, Status], now: int) -> Iterator[tuple[Record, Run]]:
        """Yield the blocked runs that come after runs which ended, with their next records."""
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
                yield record, _refused(run, refused[each], now)
            elif run.waits > satisfied[each]:
                yield record, replace(run, waits=run.waits - satisfied[each])
            else:
                run_at = now - run.run_at if run.run_at < 0 else max(run.run_at, now)
                yield record, replace(run, status=_PENDING, waits=0, run_at=run_at)


def _refused(run: Run, by: str, now: int) -> Run:
    """Return a run that is due at once, to be cancelled by whoever claims it."""
    return replace(run, status=_PENDING, waits=0, refused=by, run_at=now)
