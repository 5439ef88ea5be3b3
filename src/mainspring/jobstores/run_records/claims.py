"""Claim runs in run records: find the due runs, judge them by their gates, and write the claim of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from mainspring.core.instants import SECOND
from mainspring.core.lanes import Want as ClaimWant
from mainspring.core.run import UNTIL_START_PREFIX
from mainspring.core.waiting.gates import PARKED, QUEUE_GATE, STARTS, judge, limit_of
from mainspring.jobstores.base import CHANGES
from mainspring.jobstores.records.rows import MOST_ATTEMPTS, BeatRow, RunRow, gate_of
from mainspring.jobstores.run_records.gates import GateChanges, GateSlots, queue_gate
from mainspring.jobstores.run_records.records import RunRecord, Want, made
from mainspring.jobstores.values import Hold

__all__ = ["RunClaims"]

GATED_PAGE: Final = 200
"""Read at least this many runs at once after a page that had gates: some of the runs cannot start."""
_MOST_LOST_PAGES: Final = 20
"""A claim gives up, and looks again later, after more than this many pages that it could change nothing of."""


class ClaimTerms(msgspec.Struct, frozen=True):
    """The values that a claim writes into each of its runs."""

    node: str
    token: str
    now: int
    until: int


class _JudgedPage(msgspec.Struct):
    """The verdicts on a page of due runs: start now, park, or put off until a time."""

    start: list[RunRecord] = []
    park: list[RunRecord] = []
    put_off: list[tuple[RunRecord, int]] = []


class RunClaims(GateChanges):
    """The verbs that claim runs, renew leases and cancel."""

    def _claim_rows(
        self, wants: Sequence[ClaimWant], node: str, token: str, lease: float
    ) -> tuple[int, list[RunRow], int | None]:
        held = [each.row for each in self.records.find(Want(status=("running",), token=token), "urgent", 10**6)]
        found = [self._claim(lanes, node, token, 0 if held else limit, lease) for lanes, limit in wants]
        rows = held or [row for _, taken, _ in found for row in taken]
        now = found[0][0] if found else self._now()
        return now, rows, min((at for *_, at in found if at is not None), default=None)

    def _claim(
        self, queues: Sequence[str], node: str, token: str, limit: int, lease: float
    ) -> tuple[int, list[RunRow], int | None]:
        """Claim up to `limit` runs of some lanes; return now, the runs, and when the next one can be claimed."""
        now = self._now()
        terms = ClaimTerms(node, token, now, now + int(lease * SECOND))
        limits = self._gates(queue_gate(queue) for queue in dict.fromkeys(queues))
        limited = {name: gate for name, gate in limits.items() if gate.state.allowed is not None}
        # Do this before counting the slots: a run that ends too late for the count then wakes this process.
        self.records.limited.update(name.removeprefix(QUEUE_GATE) for name in limited)
        self.records.limited.difference_update(name.removeprefix(QUEUE_GATE) for name in limits.keys() - limited.keys())
        if limited:
            self._count_slots(limited, now)
        open_queues = [queue for queue in dict.fromkeys(queues) if _has_room(limited, queue)]
        taken: list[RunRow] = []
        short = False
        if limit > 0 and open_queues:
            taken, open_queues, short = self._take(open_queues, set(limited), terms, limit)
        taken.sort(key=lambda row: (-row.priority, row.run_at, row.id))
        return now, taken, self._next_at(open_queues, now, none_due=len(taken) < limit, short=short)

    def _next_at(self, queues: Sequence[str], now: int, *, none_due: bool, short: bool) -> int | None:
        if short:
            return now
        want = Want(status=("pending",), lanes=tuple(queues), run_after=now if none_due else None)
        rest = self.records.find(want, "run_at", 1) if queues else []
        return rest[0].row.run_at if rest else None

    def _take(
        self, queues: list[str], limited: set[str], terms: ClaimTerms, limit: int
    ) -> tuple[list[RunRow], list[str], bool]:
        """Claim due runs; return them, the lanes whose queues still have room, and True if the claim gave up early."""
        taken: list[RunRow] = []
        size, lost = limit, 0
        while len(taken) < limit and queues:
            want = Want(status=("pending",), lanes=tuple(queues), run_until=terms.now)
            page = self.records.find(want, "urgent", size)
            if not page:
                break
            gated = {gate for each in page if (gate := gate_of(each.row)) is not None}
            gates = self._gates(gated | limited.intersection(map(queue_gate, queues)))
            if not gates:
                won = self._start(page[: limit - len(taken)], terms)
                taken += won
                lost += not won
            else:
                size = max(limit - len(taken), GATED_PAGE)
                won, done = self._take_gated(page, gates, terms, limit - len(taken))
                taken += won
                lost += not done
                queues = [queue for queue in queues if _has_room(gates, queue)]
            if lost > _MOST_LOST_PAGES:
                return taken, queues, True
        return taken, queues, False

    def _take_gated(
        self, page: Sequence[RunRecord], gates: dict[str, GateSlots], terms: ClaimTerms, limit: int
    ) -> tuple[list[RunRow], bool]:
        """Judge a page of due runs by their gates; return the claimed runs, and False if the page came to nothing.

        A page comes to nothing if other nodes changed its gates or its runs first.
        """
        self._count_slots(gates, terms.now)
        judged = _judge_page(page, gates, terms.now, limit)
        taken = {name: len(gate.taken) for name, gate in gates.items()}
        lost = self._write_gates(gates.values(), terms.now)
        may_start = [each for each in judged.start if not lost & _names(each.row)]
        stuck = {each.row.id for each in judged.start} - {each.row.id for each in may_start}
        won = self._start(may_start, terms)
        unused = stuck | ({each.row.id for each in may_start} - {row.id for row in won})
        if unused:
            self._give_back(gates.keys() - lost, unused)
        park = [each for each in judged.park if each.row.gate not in lost]
        put_off = [(each, at) for each, at in judged.put_off if each.row.gate not in lost]
        moved = [made(replace(each, row=replace(each.row, run_at=at)), terms.now) for each, at in put_off]
        parked = [made(replace(each, row=replace(each.row, status="blocked")), terms.now) for each in park]
        before = [each for each, _ in put_off] + park
        done = self._swap([(new, old.version) for new, old in zip(moved + parked, before, strict=True)])
        if park:
            names = {str(each.row.gate) for each in park}
            # A run that left its gate after the verdict may not have seen the runs that were parked here.
            self._fill(names, taken)
        full = len(won) == limit or len(judged.start) + len(park) + len(put_off) < len(page)
        return won, bool(won or any(done)) or (full and not lost and not unused)

    def _start(self, records: Sequence[RunRecord], terms: ClaimTerms) -> list[RunRow]:
        """Write the claim of each run that no other node has changed meanwhile; return the claimed runs."""
        claimed = [made(replace(each, row=_claimed(each.row, terms)), terms.now) for each in records]
        won = self._swap([(new, old.version) for new, old in zip(claimed, records, strict=True)])
        return [new.row for new, mine in zip(claimed, won, strict=True) if mine]

    # -- leases ------------------------------------------------------------------------------------------------

    def _extend_rows(self, beats: Sequence[BeatRow], lease: float) -> list[Hold]:
        until = self._now() + int(lease * SECOND)
        wanted: dict[str, list[BeatRow]] = {}
        for beat in beats:
            wanted.setdefault(beat.run_id, []).append(beat)
        holds: dict[str, tuple[str, Hold]] = {}

        def renew(record: RunRecord) -> RunRecord | None:
            row = record.row
            holds.pop(row.id, None)
            mine = [beat for beat in wanted[row.id] if beat.token == row.token]
            if row.status != "running" or not mine:
                return None
            holds[row.id] = mine[0].token, Hold.CANCEL if row.cancelling else Hold.HELD
            live = next((beat.live for beat in reversed(mine) if beat.live is not None), row.live)
            return replace(record, row=replace(row, lease_until=until, live=live))

        self._change(wanted, renew)
        return [
            known[1] if (known := holds.get(beat.run_id)) is not None and known[0] == beat.token else Hold.LOST
            for beat in beats
        ]

    def cancel(self, run_ids: Sequence[str]) -> list[bool]:
        def mark(record: RunRecord) -> RunRecord | None:
            return replace(record, row=replace(record.row, cancelling=True)) if record.row.status == "running" else None

        written = self._change(run_ids, mark)
        if written:
            self.records.stir(CHANGES)
        return [run_id in written for run_id in run_ids]


def _claimed(row: RunRow, terms: ClaimTerms) -> RunRow:
    return replace(
        row,
        status="running",
        attempt=min(row.attempt + 1, MOST_ATTEMPTS),
        node=terms.node,
        token=terms.token,
        lease_until=terms.until,
        claimed_at=terms.now,
        unique=None if row.unique is not None and row.unique.startswith(UNTIL_START_PREFIX) else row.unique,
    )


def _names(row: RunRow) -> set[str]:
    """Return the gates whose slots a run needs."""
    gate = gate_of(row)
    return {queue_gate(row.queue)} if gate is None else {queue_gate(row.queue), gate}


def _has_room(gates: dict[str, GateSlots], queue: str) -> bool:
    gate = gates.get(queue_gate(queue))
    return gate is None or gate.state.allowed is None or len(gate.taken) < gate.state.allowed


def _judge_page(page: Sequence[RunRecord], gates: dict[str, GateSlots], now: int, limit: int) -> _JudgedPage:
    """Judge due runs in the order of urgency, up to `limit` starts; reserve slots for the runs that may start."""
    judged = _JudgedPage()
    for record in page:
        row = record.row
        if len(judged.start) == limit:
            break
        if not _has_room(gates, row.queue):
            continue
        gate = gate_of(row)
        if gate is not None:
            at = gates[gate]
            verdict = judge(limit_of(row.gate_spec), at.state, len(at.taken), now)
            if verdict == PARKED:
                judged.park.append(record)
                continue
            if verdict != STARTS:
                judged.put_off.append((record, verdict))
                continue
            at.grant(record)
        queue = gates.get(queue_gate(row.queue))
        if queue is not None:
            queue.grant(record)
        judged.start.append(record)
    return judged
