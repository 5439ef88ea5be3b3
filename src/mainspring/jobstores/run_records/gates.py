"""Gates over run records: a store counts slots in the records of the runs that are running.

A claim that gives out slots first reserves them: it writes into the gate which runs are to start, and the version of
each record. Of several claims that have read the same gate, only one can write it. Then the claim writes the runs.
Until then, a reserved run counts as a running one. A reservation ends as soon as the record has another version, so no
slot can leak. If the claim dies in between, a later claim gives the record a new version, which the dead claim cannot
have seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.lanes import lanes_of, queue_of
from mainspring.core.waiting.gates import QUEUE_GATE, GateState, room
from mainspring.jobstores.base import CHANGES
from mainspring.jobstores.records.rows import gate_of, new_version
from mainspring.jobstores.run_records.changing import RecordChanges
from mainspring.jobstores.run_records.records import RunRecord, StoreNote, Want

__all__ = ["GateChanges", "GateSlots", "queue_gate"]

RESERVED_US: Final = 10 * SECOND
"""A claim that has not written its reserved runs within this time may be dead."""
MOST_PARKED: Final = 1_000_000
"""Count at most this many running runs, and let in at most this many parked ones when a limit is lifted."""
_GATE: Final = "gate"
_TRIES: Final = 100


class _StoredGate(msgspec.Struct, array_like=True):
    """A gate as it is stored; `reserved` has by run the version of its record and the time of the reservation."""

    allowed: int | None = None
    tat: int = 0
    line: int = 0
    reserved: dict[str, tuple[int, int]] = {}


_decode: Final = msgspec.msgpack.Decoder(_StoredGate).decode


def queue_gate(lane: str) -> str:
    """Return the gate of the queue that a lane belongs to."""
    return f"{QUEUE_GATE}{queue_of(lane)}"


class GateSlots:
    """A gate as a claim sees it: its state, the runs that have its slots, and the slots that the claim reserves."""

    def __init__(self, name: str, note: StoreNote | None) -> None:
        stored = _StoredGate() if note is None else _decode(note.data)
        self.name, self.version = name, None if note is None else note.version
        self.state = GateState(stored.allowed, stored.tat, stored.line)
        self.reserved = dict(stored.reserved)
        self.taken: set[str] = set()
        self._before = (stored.tat, stored.line)
        self.grants: dict[str, int] = {}

    def grant(self, record: RunRecord) -> None:
        """Reserve a slot for a run."""
        self.grants[record.row.id] = record.version
        self.taken.add(record.row.id)

    def changed(self) -> bool:
        """Return True if this gate has to be written before the claim goes on."""
        return bool(self.grants) or self._before != (self.state.tat, self.state.line)

    def note(self, now: int) -> StoreNote:
        """Return the gate as it is to be stored."""
        reserved = {**self.reserved, **{run_id: (version, now) for run_id, version in self.grants.items()}}
        state = _StoredGate(self.state.allowed, self.state.tat, self.state.line, reserved)
        return StoreNote(_GATE, self.name, new_version(), msgspec.msgpack.encode(state))


class GateChanges(RecordChanges):
    """The steps that read and write gates, and let parked runs in."""

    def _gates(self, names: Iterable[str]) -> dict[str, GateSlots]:
        """Read gates by name; a gate that is not stored has no limit."""
        wanted = sorted(set(names))
        found = {note.name: note for note in self.records.notes(_GATE, names=wanted)} if wanted else {}
        return {name: GateSlots(name, found.get(name)) for name in wanted}

    def _count_slots(self, gates: Mapping[str, GateSlots], now: int) -> None:
        """Find the runs that have the slots of gates.

        Read the reserved records before the running ones: a run that starts in between is then seen running.
        """
        reserved = {run_id for gate in gates.values() for run_id in gate.reserved}
        found = self.records.get(sorted(reserved)) if reserved else {}
        for gate in gates.values():
            self._drop_reservations(gate, found, now)
        named = tuple(name for name in gates if not name.startswith(QUEUE_GATE))
        for want in (Want(queues=_lanes_of_queues(gates)), Want(gates=named)):
            if want.queues or want.gates:
                for record in self.records.find(replace(want, status=("running",)), "run_at", MOST_PARKED):
                    row = record.row
                    name = queue_gate(row.queue) if want.queues else gate_of(row)
                    if name in gates:
                        gates[str(name)].taken.add(row.id)

    def _drop_reservations(self, gate: GateSlots, found: Mapping[str, RunRecord], now: int) -> None:
        """Drop reservations that were used, and old ones once no claim can use them; each one left takes a slot."""
        for run_id, (version, since) in list(gate.reserved.items()):
            record = found.get(run_id)
            used = record is None or record.version != version
            if not used and not now - RESERVED_US < since <= now + RESERVED_US:
                assert record is not None
                used = bool(self._change([run_id], lambda record: record, [record], tries=1))
            if used:
                del gate.reserved[run_id]
        gate.taken = set(gate.reserved)

    def _write_gates(self, gates: Iterable[GateSlots], now: int) -> set[str]:
        """Write the changed gates; return the names of those that another node has changed first."""
        changed = [gate for gate in gates if gate.changed()]
        notes = [gate.note(now) for gate in changed]
        writes = [(note, gate.version) for note, gate in zip(notes, changed, strict=True)]
        done = self.records.put_notes(writes) if writes else []
        return {gate.name for gate, won in zip(changed, done, strict=True) if not won}

    def _give_back(self, names: Iterable[str], run_ids: set[str]) -> None:
        """Give back the slots that were reserved for runs that do not start."""
        left = set(names)
        for _ in range(_TRIES):
            gates = [gate for gate in self._gates(left).values() if run_ids & gate.reserved.keys()]
            if not gates:
                return
            for gate in gates:
                gate.reserved = {each: kept for each, kept in gate.reserved.items() if each not in run_ids}
            notes = [(gate.note(0), gate.version) for gate in gates]
            done = self.records.put_notes(notes)
            left = {gate.name for gate, won in zip(gates, done, strict=True) if not won}

    # -- parked runs -------------------------------------------------------------------------------------------

    def _let_in(self, gate: str, number: int) -> None:
        """Make up to `number` parked runs of each lane pending again: higher priority first, then older."""
        want = Want(status=("blocked",), gates=(gate,), parked=True)
        for lane in self.records.count(want, "lane"):
            left = number
            for _ in range(_TRIES):
                page = self.records.find(replace(want, lanes=(lane,)), "oldest", left) if left > 0 else []
                if not page:
                    break
                now = self._now()

                def back(record: RunRecord, now: int = now) -> RunRecord | None:
                    if record.row.status != "blocked" or record.open:
                        return None
                    return replace(record, row=replace(record.row, status="pending", run_at=now))

                left -= len(self._change([each.row.id for each in page], back, page, tries=1))

    def _fill(self, names: Iterable[str], taken: Mapping[str, int] | None = None) -> None:
        """Let in as many parked runs as each gate has room for.

        With `taken`, the earlier number of taken slots by gate, let in one run for each slot that became free since.
        """
        gates = self._gates(names)
        self._count_slots(gates, self._now())
        for name, gate in gates.items():
            room = self._room(gate) if taken is None else taken[name] - len(gate.taken)
            if room > 0:
                self._let_in(name, room)
                self.records.stir(CHANGES)

    def _room(self, gate: GateSlots) -> int:
        """Return how many more runs may run: by the number that somebody set for the gate, else by its parked runs."""
        parked: list[RunRecord] = []
        if gate.state.allowed is None:
            want = Want(status=("blocked",), gates=(gate.name,), parked=True)
            parked = self.records.find(want, "oldest", 1000)
        return min(MOST_PARKED, room(gate.state.allowed, (each.row.gate_spec for each in parked), len(gate.taken)))

    def set_gate(self, name: str, allowed: int | None) -> None:
        for _ in range(_TRIES):
            [gate] = self._gates([name]).values()
            gate.state.allowed = allowed
            if self.records.put_notes([(gate.note(self._now()), gate.version)])[0]:
                break
        if not name.startswith(QUEUE_GATE):
            self._fill([name])
        self.records.stir(CHANGES)

    def _limits(self) -> dict[str, int]:
        """Return the numbers that people have set, by gate."""
        gates = {note.name: _decode(note.data) for note in self.records.notes(_GATE)}
        return {name: gate.allowed for name, gate in gates.items() if gate.allowed is not None}

    def _forget_gates(self, now: int, limit: int) -> None:
        """Delete gates without a number that no run needs; keep a rate until its next start is due."""
        idle = []
        for note in self.records.notes(_GATE, limit=limit):
            stored = _decode(note.data)
            if stored.allowed is None and stored.tat <= now:
                idle.append(note)
        names = tuple(note.name for note in idle)
        if not names:
            return
        used: Counter[str] = self.records.count(Want(status=("blocked", "pending", "running"), gates=names), "gate")
        lanes = _lanes_of_queues(names)
        if lanes:
            busy = self.records.count(Want(status=("running",), queues=lanes), "queue")
            used.update(Counter({queue_gate(queue): number for queue, number in busy.items()}))
        self.records.drop_notes([note for note in idle if not used[note.name]])


def _lanes_of_queues(gates: Iterable[str]) -> tuple[str, ...]:
    """Return the lanes of those gates that belong to a queue."""
    queues = [name.removeprefix(QUEUE_GATE) for name in gates if name.startswith(QUEUE_GATE)]
    return tuple(lane for queue in queues for lane in lanes_of(queue))
