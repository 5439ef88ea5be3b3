"""The gates of the memory store: which runs are running or parked, and which come back when a slot is free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush

import msgspec

from mainspring.core.run import FINAL, Run, Status
from mainspring.core.waiting.gates import STARTS, GateState, judge, limit_of, room
from mainspring.jobstores.memory.indexes import MOST_OUTDATED_ITEMS, Record

__all__ = ["GateTable"]

_Parked = tuple[int, int, int, str]  # -priority, created_at, number, run id

_RUNNING, _BLOCKED = Status.RUNNING, Status.BLOCKED


class Gate(msgspec.Struct, eq=False):
    """A gate: its state, its unfinished runs, the number of running ones, and the parked ones by lane."""

    state: GateState = msgspec.field(default_factory=GateState)
    members: set[str] = set()
    running: int = 0
    parked: dict[str, list[_Parked]] = {}


class GateTable:
    """All gates by name. A refused run passes no gate, so it takes no slot."""

    __slots__ = ("_gates", "_records", "freed")

    def __init__(self, records: Mapping[str, Record]) -> None:
        self._records = records
        self._gates: dict[str, Gate] = {}
        self.freed: dict[str, int] = {}
        """How many runs of each gate have stopped: as many parked runs of each lane may come back."""

    def members(self, name: str) -> list[Run]:
        """Return the unfinished runs of a gate, in no order."""
        gate = self._gates.get(name)
        return [] if gate is None else [self._records[each].run for each in gate.members]

    def judge(self, run: Run, now: int) -> int:
        """Take a slot for a run, if one is free; return the verdict of `core.waiting.gates.judge`."""
        gate = self._gate(run)
        verdict = judge(limit_of(run.gate_spec), gate.state, gate.running, now)
        if verdict == STARTS:
            gate.running += 1
        return verdict

    def enter(self, record: Record, number: int) -> None:
        """Add a run that is filed under its status; park it under a number if it waits only for a slot."""
        run = record.run
        if run.status in FINAL:
            return
        gate = self._gate(run)
        gate.members.add(run.id)
        if run.status is _RUNNING:
            gate.running += run.refused is None
        elif run.status is _BLOCKED and not run.waits:
            record.number = number
            heappush(gate.parked.setdefault(run.lane, []), (-run.priority, run.created_at, number, run.id))

    def leave(self, record: Record, run: Run) -> None:
        """Note that a run gets the next record `run`: it may stop running, end or go to another gate."""
        old = record.run
        gate = self._gate(old)
        ran = old.status is _RUNNING and old.refused is None
        gone = run.status in FINAL or run.gate != old.gate
        gate.running -= ran
        if old.status is _BLOCKED:
            record.number = 0
        if gone:
            gate.members.discard(old.id)
        if (ran and run.status is not _RUNNING) or (gone and old.status not in FINAL):
            name = str(old.gate)
            self.freed[name] = self.freed.get(name, 0) + 1

    def set(self, name: str, allowed: int | None) -> int:
        """Set the number of a gate; return how many parked runs of each lane may come back."""
        gate = self._gates.setdefault(name, Gate())
        gate.state.allowed = allowed
        members = (self._records[each].run for each in gate.members)
        parked = {run.gate_spec for run in members if run.status is _BLOCKED and not run.waits}
        return room(allowed, parked, gate.running)

    def numbers(self) -> dict[str, int]:
        """Return the numbers that were set, by gate."""
        set_ones = ((name, gate.state.allowed) for name, gate in self._gates.items())
        return {name: allowed for name, allowed in sorted(set_ones) if allowed is not None}

    def parked(self, name: str, number: int) -> Iterator[Record]:
        """Yield up to `number` parked runs of each lane, higher priority first, then older; the caller refiles each."""
        gate = self._gates.get(name)
        if gate is None:
            return
        for lane, heap in list(gate.parked.items()):
            left = number
            while heap and left:
                item = heappop(heap)
                if (record := self._current(item)) is not None:
                    left -= 1
                    yield record
            self._tidy(gate, lane)

    def forget(self, now: int) -> None:
        """Forget unneeded gates; a gate with a rate is needed until its next start is due."""
        for name, gate in list(self._gates.items()):
            if not gate.members and gate.state.allowed is None and gate.state.tat <= now:
                del self._gates[name]
            else:
                for lane in list(gate.parked):
                    self._tidy(gate, lane)

    def _tidy(self, gate: Gate, lane: str) -> None:
        """Drop outdated items of a lane, and the lane if nothing is left."""
        heap = gate.parked[lane]
        if len(heap) > len(gate.members) + MOST_OUTDATED_ITEMS:
            heap[:] = [item for item in heap if self._current(item) is not None]
            heapify(heap)
        while heap and self._current(heap[0]) is None:
            heappop(heap)
        if not heap:
            del gate.parked[lane]

    def _current(self, item: _Parked) -> Record | None:
        record = self._records.get(item[3])
        return record if record is not None and record.number == item[2] else None

    def _gate(self, run: Run) -> Gate:
        assert run.gate is not None
        gate = self._gates.get(run.gate)
        if gate is None:
            gate = self._gates[run.gate] = Gate()
        return gate
