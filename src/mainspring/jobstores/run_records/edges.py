"""Edges between run records: each run knows its predecessors, its successors, and the predecessors it still waits for.

The store writes an edge into both of its runs, one after the other, so a node can die in between. It stores the
successor first, blocked by all of its predecessors. Then it notes the successor in each predecessor. That note and the
end of the predecessor are writes to the same record, so one comes first. If the end comes first, the writer of the note
sees it. If the note comes first, the end finds the successor. Any node can repeat each step, and `todo_at` says from
when other nodes should.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from mainspring.core.run import HOLDS, bit_of
from mainspring.core.stored.edges import due_at
from mainspring.jobstores.records.rows import FINAL_VALUES, RunRow
from mainspring.jobstores.run_records.changing import RecordChanges
from mainspring.jobstores.run_records.records import AGAIN, LINKED, RunRecord

__all__ = ["EdgeChanges"]


def _after_ends(record: RunRecord, ended: Mapping[str, str | None], now: int, *, late: bool) -> RunRecord | None:
    """Return a record as it is after some of its predecessors have ended; None if it did not wait for any of them.

    A status of None means that the predecessor is gone: it satisfies a run that is sent back, and refuses a new one. A
    run that is judged `late`, after the ends, keeps a run time that has passed.
    """
    row = record.row
    seen = [run_id for run_id in record.open if run_id in ended]
    if row.status != "blocked" or not seen:
        return None
    refusing = [run_id for run_id in seen if not _lets_pass(record, run_id, ended[run_id])]
    if refusing:
        row = replace(row, status="pending", refused=refusing[0], run_at=now)
        return replace(record, row=row, open=())
    left = tuple(run_id for run_id in record.open if run_id not in ended)
    if left:
        return replace(record, open=left)
    run_at = due_at(row.run_at, now)
    row = replace(row, status="pending", run_at=run_at if late else max(now, run_at))
    return replace(record, row=row, open=())


def _lets_pass(record: RunRecord, run_id: str, status: str | None) -> bool:
    if status is None:
        return record.link == AGAIN
    return bool(record.after[run_id] & bit_of(status))


class EdgeChanges(RecordChanges):
    """The steps that link runs to their predecessors, and pass on the ends."""

    def _link(self, records: Iterable[RunRecord]) -> list[str]:
        """Note stored records in their predecessors, and apply ends that came before; return the ids of refused runs.

        Any node may repeat this. It leaves alone a record that is linked already, or was sent back meanwhile.
        """
        linking = {record.row.id: record for record in records if record.link != LINKED}
        behind: dict[str, dict[str, int]] = {}
        for record in linking.values():
            for run_id in record.after:
                behind.setdefault(run_id, {})[record.row.id] = record.mark
        before = self._tell(behind)
        now, refused = self._now(), set()

        def judge(record: RunRecord) -> RunRecord | None:
            run_id = record.row.id
            refused.discard(run_id)
            if record.link == LINKED or record.mark != linking[run_id].mark:
                return None
            ended = {
                each: None if before.get(each) is None else before[each].row.status
                for each in record.after
                if each not in before or before[each].row.status in FINAL_VALUES
            }
            new = _after_ends(record, ended, now, late=True) or record
            gone = [each for each in record.after if each not in before]
            if new.row.refused is not None and record.row.refused is None:
                refused.add(run_id)
            after = {each: mask for each, mask in new.after.items() if each not in gone} if gone else new.after
            return replace(new, after=after, link=LINKED, todo_at=None)

        self._change(linking, judge, linking.values())
        return [run_id for run_id in linking if run_id in refused]

    def _tell(self, behind: Mapping[str, Mapping[str, int]]) -> dict[str, RunRecord]:
        """Note successors in the records of their predecessors; return these records with the note."""
        noted: dict[str, RunRecord] = {}

        def note(record: RunRecord) -> RunRecord | None:
            new = behind[record.row.id]
            if all(record.successors.get(run_id) == mark for run_id, mark in new.items()):
                noted[record.row.id] = record
                return None
            return replace(record, successors={**record.successors, **new})

        return {**self._change(behind, note), **noted}

    def _release(self, ended: Iterable[RunRecord]) -> list[str]:
        """Pass the ends of runs on to their successors; return the ids of the successors that are refused."""
        ends: dict[str, dict[str, str | None]] = {}
        marks: dict[tuple[str, str], int] = {}
        for record in ended:
            for run_id, mark in record.successors.items():
                ends.setdefault(run_id, {})[record.row.id] = record.row.status
                marks[run_id, record.row.id] = mark
        now, refused = self._now(), set()

        def judge(record: RunRecord) -> RunRecord | None:
            run_id = record.row.id
            refused.discard(run_id)
            mine = {each: status for each, status in ends[run_id].items() if marks[run_id, each] == record.mark}
            new = _after_ends(record, mine, now, late=False)
            if new is not None and new.row.status == "pending" and new.row.refused is not None:
                refused.add(run_id)
            return new

        self._change(ends, judge)
        return [run_id for run_id in ends if run_id in refused]

    def _cut_before(self, cut: Mapping[str, tuple[Iterable[str], int]]) -> None:
        """Delete edges from predecessors: `cut` has by successor the ids of the predecessors and the edges' mark."""
        leaving: dict[str, dict[str, int]] = {}
        for run_id, (before, mark) in cut.items():
            for each in before:
                leaving.setdefault(each, {})[run_id] = mark

        def forget(record: RunRecord) -> RunRecord | None:
            old = leaving[record.row.id]
            left = {run_id: mark for run_id, mark in record.successors.items() if old.get(run_id) != mark}
            return None if len(left) == len(record.successors) else replace(record, successors=left)

        self._change(leaving, forget)

    def _cut_behind(self, cut: Iterable[RunRecord]) -> None:
        """Delete the edges from these ended runs in the records of their successors."""
        leaving: dict[str, dict[str, int]] = {}
        for record in cut:
            for run_id, mark in record.successors.items():
                leaving.setdefault(run_id, {})[record.row.id] = mark

        def forget(record: RunRecord) -> RunRecord | None:
            old = leaving[record.row.id]
            gone = {each for each, mark in old.items() if mark == record.mark and each not in record.open}
            after = {each: mask for each, mask in record.after.items() if each not in gone}
            return None if len(after) == len(record.after) else replace(record, after=after)

        self._change(leaving, forget)

    def _pinned(self, records: Sequence[RunRecord]) -> set[str]:
        """Return the ids of those finished runs that a successor still needs."""
        behind = self.records.get(list({run_id for record in records for run_id in record.successors}))
        return {
            record.row.id
            for record in records
            if any(_needs(behind[run_id], record.row) for run_id in record.successors if run_id in behind)
        }


def _needs(successor: RunRecord, row: RunRow) -> bool:
    mask = successor.after.get(row.id)
    return mask is not None and (successor.row.status not in FINAL_VALUES or bool(mask & HOLDS))
