"""Settle outcomes in run records: write those that hold, release successors, add follow-ups, let parked runs in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from mainspring.core.lanes import queue_of
from mainspring.core.run import Condition
from mainspring.core.stored.settling import holds, is_sent_back
from mainspring.jobstores.base import CHANGES, ENDS
from mainspring.jobstores.records.rows import FINAL_VALUES, SettleRow
from mainspring.jobstores.run_records.adding import RunAdding
from mainspring.jobstores.run_records.gates import GateChanges
from mainspring.jobstores.run_records.judging import frees, settled
from mainspring.jobstores.run_records.records import LINKED, RunRecord
from mainspring.jobstores.values import Answers

__all__ = ["RunSettling"]


class _Written(msgspec.Struct):
    """The writes of one settle call, and the work that remains after them."""

    ended: set[str] = set()
    changed: dict[str, RunRecord] = {}  # by id: the record that the call wrote last
    totals: Counter[str] = msgspec.field(default_factory=Counter)
    freed: Counter[str] = msgspec.field(default_factory=Counter)
    cut: list[RunRecord] = []  # the old records of runs that were sent back
    wakes: bool = False  # a run can be claimed again, or a queue has room


class RunSettling(RunAdding, GateChanges):
    """The steps that write outcomes, and finish the changes that other nodes left unfinished."""

    def _settle_rows(self, outcomes: Sequence[SettleRow]) -> Answers[bool]:
        call = _Written()
        answers: list[bool] = []
        for wave in _waves(outcomes):
            answers += self._write(wave, call)
        if call.totals:
            self.records.add_totals(call.totals)
        self._cut(call)
        refused = self._finish(list(call.changed.values()))
        for gate, number in call.freed.items():
            self._let_in(gate, number)
        if call.ended:
            self.records.stir(ENDS)
        if call.wakes or call.freed:
            self.records.stir(CHANGES)
        return Answers(answers, refused)

    def _write(self, outcomes: Sequence[SettleRow], call: _Written) -> list[bool]:
        """Write outcomes of different runs, one for each; return for each outcome whether it was written."""
        by_id = {outcome.run.id: outcome for outcome in outcomes}
        found = self.records.get(list(by_id))
        # A run that is sent back loses its successors, so pass its end on to them first.
        behind = [
            each for run_id, each in found.items() if each.unreleased and is_sent_back(each.row, by_id[run_id].run)
        ]
        if behind:
            self._finish(behind)
            found |= self.records.get([each.row.id for each in behind])
        now = self._now()
        holders = self._holders(outcomes)
        old: dict[str, RunRecord] = {}

        def conclude(record: RunRecord) -> RunRecord | None:
            outcome, run_id = by_id[record.row.id], record.row.id
            keyed = outcome.run.unique is not None and outcome.run.status not in FINAL_VALUES
            if keyed and run_id in old:  # the first try failed, perhaps because another run has taken the key
                holders.update(self._holders([outcome]))
            if not holds(outcome.condition, record.row, outcome.run, now, call.ended):
                return None
            if keyed and holders.get(str(outcome.run.unique), run_id) != run_id:
                return None
            old[run_id] = record
            return settled(outcome, record, now)

        written = self._change(by_id, conclude, found.values())
        for run_id, new in written.items():
            self._note(old[run_id], new, call)
        return [outcome.run.id in written for outcome in outcomes]

    def _holders(self, outcomes: Iterable[SettleRow]) -> dict[str, str]:
        keys = [str(o.run.unique) for o in outcomes if o.run.unique is not None and o.run.status not in FINAL_VALUES]
        return self.records.holders(keys) if keys else {}

    def _note(self, old: RunRecord, new: RunRecord, call: _Written) -> None:
        run_id, status = new.row.id, new.row.status
        call.changed[run_id] = new
        if status in FINAL_VALUES:
            call.ended.add(run_id)
            call.totals[status] += old.row.status != status
        makes_room = old.row.status == "running" and queue_of(old.row.queue) in self.records.limited
        call.wakes |= status not in FINAL_VALUES or makes_room
        if is_sent_back(old.row, new.row) or (old.after and new.mark != old.mark):
            call.cut.append(old)
        gate = frees(old.row, new.row)
        if gate is not None:
            call.freed[gate] += 1

    def _cut(self, call: _Written) -> None:
        """Delete the old edges of runs that were sent back: all edges to them, and those from a run that had ended."""
        leaving = {}
        for old in call.cut:
            new = call.changed[old.row.id]
            leaving[old.row.id] = ([each for each in old.after if each not in new.after], old.mark)
        self._cut_before(leaving)
        self._cut_behind([old for old in call.cut if old.row.status in FINAL_VALUES])

    def _finish(self, records: Sequence[RunRecord]) -> list[str]:
        """Do the steps that are left for records: release, link, add; return the ids of refused runs.

        Any node may repeat this.
        """
        busy = [each for each in records if each.todo_at is not None]
        if not busy:
            return []
        ended = [each for each in busy if each.unreleased]
        refused = self._release(ended) if ended else []
        refused += self._link(each for each in busy if each.link != LINKED)
        then = [row for each in busy for row in each.then]
        if then:
            refused += self._add_run_rows(then).refused
        added = {row.id for row in then}
        told = {each.row.id for each in ended}

        def tidy(record: RunRecord) -> RunRecord | None:
            left = [row for row in record.then if row.id not in added]
            released = record.unreleased and record.row.id in told
            if not released and len(left) == len(record.then):
                return None
            return replace(record, then=left, unreleased=False if released else record.unreleased, todo_at=None)

        self._change([each.row.id for each in busy if each.unreleased or each.then], tidy)
        self.records.stir(CHANGES)
        return refused


def _waves(outcomes: Sequence[SettleRow]) -> Iterator[list[SettleRow]]:
    """Split outcomes, in order, into parts in which no outcome depends on another one of the same part."""
    wave: dict[str, SettleRow] = {}
    for outcome in outcomes:
        run = outcome.run
        if run.id in wave or (outcome.condition is Condition.REFUSED and run.refused in wave):
            yield list(wave.values())
            wave = {}
        wave[run.id] = outcome
    if wave:
        yield list(wave.values())
