"""Add runs as records, successors first, so that no run is stored without its successors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from mainspring.core.stored.edges import check_number, due_at, merged
from mainspring.jobstores.base import CHANGES
from mainspring.jobstores.records.rows import RunRow, new_version
from mainspring.jobstores.run_records.edges import EdgeChanges
from mainspring.jobstores.run_records.records import LINKED, NEW, RunRecord, made
from mainspring.jobstores.values import Answers

__all__ = ["RunAdding"]


class RunAdding(EdgeChanges):
    """Adds runs."""

    def _add_run_rows(self, rows: Sequence[RunRow]) -> Answers[str | None]:
        if not rows:
            return Answers()
        now = self._now()
        first: dict[str, RunRow] = {}
        for row in rows:
            first.setdefault(row.id, row)
        plain = not any(row.after or row.status == "blocked" for row in first.values())
        if plain:
            known, refused = self.records.remembered(list(first), now), list[str]()
            answers = self._add_plain([row for row in first.values() if row.id not in known], now)
        else:
            answers, refused = self._add_flow(first, now)
        if any(row.id in answers for row in rows):
            self.records.stir(CHANGES)
        return Answers([answers.get(row.id, row.id) for row in rows], refused)

    def _add_plain(self, rows: Sequence[RunRow], now: int) -> dict[str, str | None]:
        """Add runs without predecessors; return the answer for each run that was not known."""
        records = [made(RunRecord(row, 0), now) for row in rows]
        done = self.records.add(records) if records else []
        answers: dict[str, str | None] = {
            each.row.id: each.row.id for each, new in zip(records, done, strict=True) if new
        }
        keyed = [each for each, new in zip(rows, done, strict=True) if not new and each.unique is not None]
        if keyed:
            there = self.records.get([row.id for row in keyed])
            wanted = [row for row in keyed if row.id not in there]
            holders = self.records.holders([str(row.unique) for row in wanted])
            # If a holder has ended since then, its run was kept out for nothing: add that run again.
            answers |= {row.id: holders.get(str(row.unique), row.id) for row in wanted}
            again = [row for row in wanted if str(row.unique) not in holders]
            if again:
                answers |= self._add_plain(again, now)
        return answers

    def _add_flow(self, first: dict[str, RunRow], now: int) -> tuple[dict[str, str | None], list[str]]:
        """Add runs, some with predecessors; return the answers for runs that were not known, and the refused ids."""
        outside = {each.id for row in first.values() for each in row.after} - first.keys()
        stored = self.records.get([*first, *outside])
        known = first.keys() & stored.keys() | self.records.remembered(list(first), now)
        keys = [row.unique for row in first.values() if row.unique is not None and row.id not in known]
        holders = self.records.holders(keys) if keys else {}
        answers: dict[str, str | None] = {}
        new: dict[str, RunRecord] = {}
        for row in first.values():
            if row.id in known:
                continue
            if row.unique is not None and row.unique in holders:
                answers[row.id] = holders[row.unique]
                continue
            masks = merged(row.after)
            check_number(len(masks), f"run {row.id!r} comes after")
            if all(run_id in new or run_id in stored for run_id in masks):
                new[row.id] = _placed(row, masks, now)
                if row.unique is not None:
                    holders[row.unique] = row.id
            answers[row.id] = row.id if row.id in new else None
        self._count(new, stored)
        for run_id, holder in self._store(new, now).items():
            answers[run_id] = holder
        left = [stored[run_id] for run_id in first if run_id in stored]  # an earlier call may have been cut off
        return answers, self._link([*left, *(new[run_id] for run_id in new if answers[run_id] == run_id)])

    def _count(self, new: dict[str, RunRecord], stored: dict[str, RunRecord]) -> None:
        """Note the new successors in each new record; raise if there are too many."""
        number = Counter({run_id: len(each.successors) for run_id, each in stored.items()})
        for record in new.values():
            for run_id in record.after:
                number[run_id] += 1
                check_number(number[run_id], f"run {run_id!r} is followed by")
                if run_id in new:
                    new[run_id].successors[record.row.id] = record.mark

    def _store(self, new: dict[str, RunRecord], now: int) -> dict[str, str | None]:
        """Store records, successors first; return what to answer for those that others have kept out meanwhile."""
        answers: dict[str, str | None] = {}
        behind = [run_id for run_id, each in new.items() if each.after]
        for part in (behind, [run_id for run_id, each in new.items() if not each.after]):
            records = [new[run_id] for run_id in part if run_id not in answers]
            for record in records:
                new[record.row.id] = made(record, now)
            done = self.records.add([new[each.row.id] for each in records]) if records else []
            lost = [each.row for each, added in zip(records, done, strict=True) if not added]
            there = self.records.get([row.id for row in lost]) if lost else {}
            for row in lost:
                stored = there.get(row.id)
                if stored is not None:  # somebody has added the same run
                    new[row.id] = stored
                elif row.unique is not None:
                    answers[row.id] = self.records.holders([row.unique]).get(row.unique)
                    answers |= self._take_back(row.id, new, answers)
        return answers

    def _take_back(self, run_id: str, new: dict[str, RunRecord], answers: dict[str, str | None]) -> dict[str, None]:
        """Remove the new runs that come after one that could not be stored; forget their ids."""
        gone: dict[str, None] = {}
        ids: Iterable[str] = [run_id]
        while ids := [each for before in ids for each in new[before].successors if each not in gone]:
            gone |= dict.fromkeys(ids)
        marks = [(each, new[each].version) for each in gone if each not in answers]
        if marks:
            self.records.remove(marks, None)
        return gone


def _placed(row: RunRow, masks: dict[str, int], now: int) -> RunRecord:
    """Return the record of a new run, blocked by all its predecessors."""
    if masks:
        blocked = replace(row, status="blocked", refused=None)
        mark = new_version()
        return RunRecord(blocked, 0, after=masks, open=tuple(masks), mark=mark, link=NEW, successors={})
    if row.status == "blocked":
        row = replace(row, status="pending", run_at=due_at(row.run_at, now))
    return RunRecord(row, 0, link=LINKED, successors={})
