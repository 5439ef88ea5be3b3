"""Claim runs where gates or the limits of queues matter: judge each run, in the order of urgency.

1. Lock the limits of the queues, and count how many more runs of each may start (`_rooms`).
2. Find the levels that have due runs, apart for runs at gates and for the others (`_due`).
3. For each want, from the highest priority down, lock due runs (`_claim_level`): runs at gates page by page, because
   few runs of a page may get a slot.
4. Judge these runs by time (`_judge`): lease a run, park it until a slot is free, or put it off if its rate says so.
5. Write the states of the gates, and find out when the next run can be claimed (`_next_at`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from mainspring.core.lanes import Want, queue_of
from mainspring.core.waiting.gates import PARKED, STARTS, GateState, judge, limit_of
from mainspring.jobstores.records.rows import RunRow

if TYPE_CHECKING:
    from mainspring.jobstores.sqlalchemy.steps.claims import ClaimVerbs
    from mainspring.jobstores.sqlalchemy.steps.runs import Terms

__all__ = ["LimitedClaim"]

GATED_PAGE: Final = 500
"""Lock and judge this many runs of a lane at once."""
_ROOM: Final = "SELECT name, allowed FROM {queues} WHERE name {in} AND allowed > 0 ORDER BY name {lock}"
_RUNNING: Final = "SELECT queue, count(*) FROM {runs} WHERE status = 'running' AND queue {in} GROUP BY queue"
_PARK: Final = "UPDATE {runs} SET status = 'blocked', run_at = created_at WHERE id {in}"


class LimitedClaim:
    """One claim. It locks limits of queues, then runs, then gates; it skips runs and gates that others have locked."""

    def __init__(self, tx: ClaimVerbs, wants: Sequence[Want], lanes: list[str], terms: Terms) -> None:
        self._tx, self._wants, self._lanes, self._terms = tx, wants, lanes, terms
        self._now = terms.now
        self._left = 0  # how many more runs the present want takes
        self._full: set[str] = set()  # the lanes of wants that got as many runs as they asked for
        self._room: dict[str, int] = {}  # how many more runs of a queue may run, if it has a limit
        self._gates: dict[str, GateState] = {}
        self._before: dict[str, tuple[int, int]] = {}
        self._running: Counter[str] = Counter()
        self._skipped: set[str] = set()  # the gates that other claims have locked
        self._claimed: list[RunRow] = []

    def make(self) -> tuple[int, list[RunRow], int | None]:
        """Claim runs; return now, the runs, and when the next run can be claimed."""
        tx = self._tx
        self._room = self._rooms()
        levels = self._due()
        for lanes, limit in self._wants:
            self._left = limit
            for priority, plain, gated in _by_priority(levels, lanes):
                if self._left <= 0:
                    break
                self._claim_level(priority, plain, gated)
            if self._left <= 0:
                self._full.update(lanes)
        changed = [
            (name, state.tat, state.line)
            for name, state in sorted(self._gates.items())
            if self._before[name] != (state.tat, state.line)
        ]
        tx.update("limits", ("tat", "line"), changed)
        return self._now, self._claimed, self._next_at()

    def _rooms(self) -> dict[str, int]:
        """Lock the limits of queues; return how many more runs of each may start."""
        tx = self._tx
        queues = sorted({queue_of(lane) for lane in self._lanes})
        allowed: dict[str, int] = dict(tx.all(_ROOM, tx.many(queues)))
        tx.database.limited.difference_update(queues)
        tx.database.limited.update(allowed)
        if not allowed:
            return {}
        # Count in a statement after the lock: it sees every run that others have started.
        running: dict[str, int] = dict(tx.all(_RUNNING, tx.many(sorted(allowed))))
        return {queue: number - running.get(queue, 0) for queue, number in allowed.items()}

    def _due(self) -> list[tuple[str, int, bool]]:
        """Return the levels with due runs, and whether these runs stand at gates."""
        lanes = self._open(self._lanes)
        return [
            (lane, priority, gated)
            for gated in ((False, True) if lanes else ())
            for lane, priority, first in self._tx.levels(lanes, gated)
            if first <= self._now
        ]

    def _open(self, lanes: list[str]) -> list[str]:
        """Return the lanes whose queues may start more runs."""
        return [lane for lane in lanes if self._room.get(queue_of(lane), 1) > 0]

    def _claim_level(self, priority: int, plain: list[str], gated: list[str]) -> None:
        """Claim due runs of a priority by time, from lanes with runs at no gate and from lanes with runs at gates."""
        tx = self._tx
        waiting = self._lock_plain(plain, priority)
        while gated := self._open(gated):
            pages = [tx.lock_gated(lane, priority, self._terms, GATED_PAGE) for lane in gated]
            # A lane with a full page may have more runs, which may be more urgent than later runs of other lanes. So
            # judge only up to the end of that page.
            horizon = min((_by_time(page[-1]) for page in pages if len(page) == GATED_PAGE), default=None)
            runs = sorted(chain(waiting, *pages), key=_by_time)
            if horizon is None:
                self._judge(runs)
                return
            self._judge([run for run in runs if _by_time(run) <= horizon])
            waiting = [run for run in waiting if _by_time(run) > horizon]
            if self._skipped or self._left <= 0:
                break
        self._judge(waiting)

    def _lock_plain(self, lanes: list[str], priority: int) -> list[RunRow]:
        """Lock due runs that stand at no gate: from each lane, at most as many as the limit of its queue lets start."""
        tx = self._tx
        free = [lane for lane in lanes if queue_of(lane) not in self._room]
        runs = tx.lock_due(free, priority, self._left, self._terms) if free else []
        for lane in self._open([lane for lane in lanes if queue_of(lane) in self._room]):
            runs += tx.lock_due([lane], priority, min(self._left, self._room[queue_of(lane)]), self._terms)
        return runs

    def _judge(self, runs: list[RunRow]) -> None:
        """Lease the runs that may start, park those without a slot, and put off those that come too early."""
        self._lock_gates({run.gate for run in runs if run.gate is not None})
        leased: list[RunRow] = []
        parked: list[str] = []
        early: list[tuple[str, int]] = []
        for run in runs:
            if len(leased) >= self._left:
                break
            if self._room.get(run.queue, 1) <= 0 or run.gate in self._skipped:
                continue
            if run.gate is not None:
                state = self._gates[run.gate]
                verdict = judge(limit_of(run.gate_spec), state, self._running[run.gate], self._now)
                if verdict == PARKED:
                    parked.append(run.id)
                elif verdict != STARTS:
                    early.append((run.id, verdict))
                if verdict != STARTS:
                    continue
                self._running[run.gate] += 1
            leased.append(run)
            if run.queue in self._room:
                self._room[run.queue] -= 1
        tx = self._tx
        self._claimed += tx.lease(leased, self._terms)
        self._left -= len(leased)
        if parked:
            tx.run(_PARK, tx.many(sorted(parked)))
        tx.update("runs", ("run_at",), sorted(early))

    def _lock_gates(self, names: set[str]) -> None:
        """Lock the gates that this claim has not met yet, and count their running runs; note those of other claims."""
        new = names - self._gates.keys() - self._skipped
        if not new:
            return
        found = self._tx.lock_gates(new, wait=False)
        self._gates |= found
        self._before |= {name: (state.tat, state.line) for name, state in found.items()}
        self._skipped |= new - found.keys()
        self._running += self._tx.running(found)

    def _next_at(self) -> int | None:
        """Return when the next run can be claimed: now if a gate was skipped or a full want has left due runs."""
        tx, lanes = self._tx, self._open(self._lanes)
        times = [self._now] if self._skipped else []
        for gated in (False, True) if lanes else ():
            levels = tx.levels(lanes, gated)
            # Only a full want leaves due runs; otherwise other nodes are claiming the rest.
            times += [first for lane, _, first in levels if first > self._now or lane in self._full]
            others = [(lane, level) for lane, level, first in levels if first <= self._now and lane not in self._full]
            times += tx.next_of(others, self._now, gated) if others else []
        return min(times, default=None)


def _by_priority(
    levels: Sequence[tuple[str, int, bool]], lanes: Sequence[str]
) -> Iterator[tuple[int, list[str], list[str]]]:
    """Yield each priority of due runs, highest first, with the lanes that have them at no gate, and at gates."""
    found: dict[int, tuple[list[str], list[str]]] = {}
    wanted = set(lanes)
    for lane, priority, gated in levels:
        if lane in wanted:
            found.setdefault(priority, ([], []))[gated].append(lane)
    for priority in sorted(found, reverse=True):
        yield priority, *found[priority]


def _by_time(run: RunRow) -> tuple[int, str]:
    return run.run_at, run.id
