"""Claims in SQL: lease due runs, renew leases, and find leases that are over.

A level is a lane with one priority. Its waiting runs differ only in their times, so an index finds the next one at
once. A claim goes like this:

1. `look` reads whether limits or gates matter, and the runs that the token holds because an earlier reply was lost.
   SQLite reads the levels in the same statement. PostgreSQL also leases the most urgent runs in it (`FirstTake`).
2. If limits or gates matter, `LimitedClaim` does the rest: it judges each run.
3. Otherwise, for each want and from the highest priority down, `take` leases the earliest due runs of some lanes:
   `lock_due` locks and reads them, `lease` writes. SQLite and PostgreSQL have quicker statements for `take`.
4. `next_of` finds out when the next run can be claimed, for the levels of which `take` has not said that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

from mainspring.core.instants import SECOND
from mainspring.core.lanes import Want, queue_of
from mainspring.core.run import UNTIL_START_PREFIX
from mainspring.jobstores.base import Hold
from mainspring.jobstores.records.rows import MOST_ATTEMPTS, BeatRow, RunRow
from mainspring.jobstores.sqlalchemy.steps.runs import (
    CLAIMED,
    NEXT_ATTEMPT,
    RUN_COLUMNS,
    Terms,
    claimed_row,
    run_row,
)
from mainspring.jobstores.sqlalchemy.transaction import Row, Tx
from mainspring.jobstores.sqlalchemy.waiting.gates import GateVerbs
from mainspring.jobstores.sqlalchemy.waiting.judging import LONGEST_LEASE_US
from mainspring.jobstores.sqlalchemy.waiting.limited import LimitedClaim

__all__ = [
    "DUE", "FEW_LANES", "HELD", "KEEP_CLAIM", "LEVELS", "NEXT", "WITH_LEVELS", "ClaimVerbs", "Claimed",
    "FirstTake", "Level", "Look", "cancel", "extend", "lapsed", "queues_of",
]  # fmt: skip

Claimed = tuple[int, list[RunRow], int | None]
"""The store's now, the claimed runs, and when other runs can be claimed."""
KEEP_CLAIM: Final = "UPDATE {runs} SET lease_until = lease_until + 1 WHERE status = 'running' AND token = ?"
"""Changes the claimed runs slightly, only to commit: a commit that waits for the disk brings all earlier ones there.

The change is necessary because SQLite commits nothing if no byte has changed.
"""
Level = tuple[str, int]
"""A lane, and a priority of runs that wait in it."""

_ID: Final = attrgetter("id")


class FirstTake(NamedTuple):
    """Runs that a look has leased already: the most urgent ones of one want, at one priority."""

    want: int
    """The index of the want."""
    priority: int
    lanes: Sequence[str]
    runs: list[RunRow]
    times: list[int]
    """When other runs of these lanes at this priority can be claimed."""


class Look(NamedTuple):
    """The answers of the first look of a claim."""

    now: int
    limits: dict[str, int]
    """The limit of each queue that has one; 0 or less for a paused queue."""
    gated: bool
    """Whether runs wait at gates."""
    held: list[Row]
    """The runs that the token holds already."""
    levels: list[tuple[str, int, int]] | None = None
    """Each level with the time of its first run, before the look leased any; None if the look did not read them."""
    first_take: FirstTake | None = None


FEW_LANES: Final = 4
"""For up to this many lanes, read from each lane as many runs as are wanted from all of them together."""

HELD: Final = f"SELECT {RUN_COLUMNS} FROM {{runs}} WHERE status = 'running' AND token = ?"
"""The runs that a token holds."""
# Enter the index once per priority, and skip runs that are not due yet, however many there are. Do not use min and
# max: PostgreSQL may compute them by reading all waiting runs.
WITH_LEVELS: Final = """
WITH RECURSIVE wanted AS (%s),
level(lane, priority) AS (
    SELECT wanted.name, (SELECT r.priority FROM {runs} r WHERE r.status = 'pending' AND r.at_gate %s
                            AND r.lane = wanted.name ORDER BY r.priority DESC LIMIT 1)
      FROM wanted
    UNION ALL
    SELECT lane, (SELECT r.priority FROM {runs} r WHERE r.status = 'pending' AND r.at_gate %s
                      AND r.lane = level.lane AND r.priority < level.priority
                    ORDER BY r.priority DESC LIMIT 1)
      FROM level WHERE priority IS NOT NULL),
first(lane, priority, run_at) AS (
    SELECT lane, priority, (SELECT r.run_at FROM {runs} r WHERE r.status = 'pending' AND r.at_gate %s
                                AND r.lane = level.lane AND r.priority = level.priority
                              ORDER BY r.run_at LIMIT 1)
      FROM level WHERE priority IS NOT NULL)
"""
"""Finds the first run of each level of the wanted lanes, either among the runs at gates or among the others."""
_LEVELS: Final = f"{WITH_LEVELS}SELECT lane, priority, run_at FROM first WHERE run_at IS NOT NULL"
_AT_GATE: Final = {False: "IS NULL", True: "IS NOT NULL"}
_LEVELS_OF_ONE: Final = {key: _LEVELS % ("SELECT {param} AS name", *[at] * 3) for key, at in _AT_GATE.items()}
LEVELS: Final = {key: _LEVELS % ("{each}", *[at] * 3) for key, at in _AT_GATE.items()}
"""Each level of the wanted lanes, with the time of its first run. Here and below, the key True is for runs at gates."""
_NEXT: Final = (
    "SELECT r.run_at FROM {runs} r WHERE r.status = 'pending' AND r.at_gate %s"
    " AND r.lane = %s AND r.priority = %s AND r.run_at > ? ORDER BY r.run_at LIMIT 1"
)
NEXT: Final = {key: _NEXT % (at, "?", "?") for key, at in _AT_GATE.items()}
"""The time of the first run of a level after an instant."""
_NEXT_OF_MANY: Final = {
    key: f"SELECT ({_NEXT % (at, 'level.lane', 'level.priority')}) FROM {{levels}}" for key, at in _AT_GATE.items()
}
DUE: Final = {
    key: f"FROM {{runs}} WHERE status = 'pending' AND at_gate {at} AND lane = ? AND priority = ? AND run_at <= ?"
    " ORDER BY run_at LIMIT ? {skip}"
    for key, at in _AT_GATE.items()
}
"""The first due runs of a level, locked; runs that others have locked are skipped."""
_LIMITS: Final = (
    "SELECT name, allowed FROM {queues} WHERE name {in} UNION ALL SELECT NULL, 0 FROM (SELECT 1 FROM {runs}"
    " WHERE status = 'pending' AND at_gate IS NOT NULL AND lane {in} LIMIT 1) AS gated"
)
"""The limits of queues, and a row without a name if runs wait at gates."""
_LEASE: Final = (
    f"UPDATE {{runs}} SET status = 'running', attempt = {NEXT_ATTEMPT}, node = ?, token = ?, lease_until = ?,"
    " claimed_at = ? WHERE id {in}"
)


class ClaimVerbs(GateVerbs):
    """The verbs that claim runs, in statements that every dialect has."""

    def claim(self, wants: Sequence[Want], node: str, token: str, lease: float) -> Claimed:
        """Lease due runs, for each want up to its limit from its lanes; if the token has runs already, return those."""
        lanes = sorted({lane for lanes, _ in wants for lane in lanes})
        now, limits, gated, held, levels, first_take = self.look(wants, lanes, node, token, lease)
        terms = Terms(node, token, now + int(lease * SECOND), now)
        if limits:
            lanes = [lane for lane in lanes if limits.get(queue_of(lane), 1) > 0]  # not of paused queues
        limited = gated or max(limits.values(), default=0) > 0
        if limited and not held and lanes and any(limit > 0 for _, limit in wants):
            return self.claim_limited(wants, lanes, terms)
        if not limited and self.database.limited:
            self.database.limited.difference_update(queues_of(lanes))
        if levels is None:
            levels = self.levels(lanes) if lanes else []
        of_lane: dict[str, list[tuple[str, int, int]]] = {lane: [] for lane in lanes}
        for level in levels:
            if level[0] in of_lane:
                of_lane[level[0]].append(level)
        if held:
            firsts = [first for some in of_lane.values() for *_, first in some]
            return now, sorted(map(run_row, held), key=_urgency), min(firsts, default=None)
        claimed: list[RunRow] = []
        times: list[int] = []
        unread: dict[int, list[Level]] = {}  # levels whose next run is still to be read, by the time that it is after
        for number, (names, limit) in enumerate(wants):
            waiting = [level for name in dict.fromkeys(names) for level in of_lane.get(name, ())]
            if first_take is not None and first_take.want == number:
                claimed += first_take.runs
                times += first_take.times
                limit -= len(first_take.runs)
                waiting = [
                    each for each in waiting if each[1] != first_take.priority or each[0] not in first_take.lanes
                ]
            if not waiting:
                continue
            found, later, levels_unread = self._claim_due(waiting, limit, terms)
            claimed += found
            times += later
            # Only a full claim leaves due runs; otherwise other nodes are claiming the rest.
            unread.setdefault(0 if len(found) >= limit else now, []).extend(levels_unread)
        for after, some in unread.items():
            times += self.next_of(some, after) if some else []
        return now, claimed, min(times, default=None)

    def _claim_due(
        self, levels: Sequence[tuple[str, int, int]], limit: int, terms: Terms
    ) -> tuple[list[RunRow], list[int], list[Level]]:
        """Lease the most urgent due runs of some levels, given with the times of their first runs.

        Return the runs, the times at which others can be claimed, and the levels of which that is not known yet.
        """
        later: list[int] = []
        due: dict[int, list[tuple[int, str]]] = {}
        for lane, priority, first in levels:
            if first > terms.now:
                later.append(first)
            else:
                due.setdefault(priority, []).append((first, lane))
        claimed: list[RunRow] = []
        unread: list[Level] = []
        for priority in sorted(due, reverse=True):
            # Each of the `room` most urgent runs is in one of the `room` lanes whose first runs are earliest: skip the
            # other lanes.
            room = max(0, limit - len(claimed))
            peers = sorted(due[priority])
            if len(peers) > room:
                later += [first for first, _ in peers[room:]]
            wanted = [lane for _, lane in peers[:room]]
            if wanted:
                taken, times = self.take(wanted, priority, room, terms)
                claimed += taken
                if times is None:
                    unread += [(lane, priority) for lane in wanted]
                else:
                    later += times
        return claimed, later, unread

    def look(self, wants: Sequence[Want], lanes: list[str], node: str, token: str, lease: float) -> Look:
        """Read the limits of the queues, whether runs wait at gates, and the runs that the token holds.

        A dialect may do more in the same step: read the levels, and lease runs if neither limits nor gates matter and
        the token holds none.
        """
        limits: dict[str | None, int] = {}
        if lanes:
            limits.update(self.all(_LIMITS, self.many(queues_of(lanes)), self.many(lanes)))
        gated = limits.pop(None, None) is not None
        return Look(self.now, {str(name): allowed for name, allowed in limits.items()}, gated, self.all(HELD, token))

    def claim_limited(self, wants: Sequence[Want], lanes: list[str], terms: Terms) -> Claimed:
        """Lease due runs where gates or the limits of queues matter, in one transaction."""
        if not self.begun:
            self.begin()
        return LimitedClaim(self, wants, lanes, terms).make()

    def levels(self, lanes: list[str], gated: bool = False) -> list[Any]:
        """Return each level of the lanes, with the time of its first run.

        With `gated`, look only at runs that stand at a gate; without it, only at the others.
        """
        if len(lanes) == 1:
            return self.all(_LEVELS_OF_ONE[gated], lanes[0])
        return self.all(LEVELS[gated], self.many(lanes))

    def next_of(self, levels: list[Level], after: int, gated: bool = False) -> list[int]:
        """Return the time of the first run after `after`, for each level that has one."""
        if len(levels) == 1:
            found = self.all(NEXT[gated], *levels[0], after)
        else:
            found = self.all(_NEXT_OF_MANY[gated], after, *self.pairs(levels))
        return [run_at for (run_at,) in found if run_at is not None]

    def pairs(self, levels: list[Level]) -> list[Any]:
        """Return levels as the parameters of `{levels}`."""
        return [self.many(levels)]

    def take(self, lanes: list[str], priority: int, room: int, terms: Terms) -> tuple[list[RunRow], list[int] | None]:
        """Lease the most urgent due runs of some lanes at a priority; skip runs that other nodes have locked.

        Also return the times at which other runs of these levels can be claimed, or None if nothing has read them.
        """
        if not self.begun:
            self.begin()
        return self.lease(self.lock_due(lanes, priority, room, terms), terms), None

    def lease(self, runs: list[RunRow], terms: Terms) -> list[RunRow]:
        """Lease locked runs; give up the unique keys that last only until the start."""
        if not runs:
            return runs
        self.run(_LEASE, *terms, self.many(sorted(map(_ID, runs))))
        starting = [run for run in runs if run.unique is not None and run.unique.startswith(UNTIL_START_PREFIX)]
        if starting:
            self.run("UPDATE {runs} SET unique_key = NULL WHERE id {in}", self.many(sorted(map(_ID, starting))))
        for run in starting:
            run.unique = None
        for run in runs:
            run.attempt = min(run.attempt, MOST_ATTEMPTS) + 1
        return runs

    def lock_gated(self, lane: str, priority: int, terms: Terms, limit: int) -> list[RunRow]:
        """Lock due runs of a lane that stand at gates."""
        runs = []
        for row in self.table((*CLAIMED, "gate", "gate_spec"), DUE[True], lane, priority, terms.now, limit):
            run = claimed_row(row, terms)
            run.gate, run.gate_spec = row[-2:]
            runs.append(run)
        return runs

    def lock_due(self, lanes: list[str], priority: int, room: int, terms: Terms) -> list[RunRow]:
        """Lock the most urgent due runs that stand at no gate; `lease` must follow."""
        return [claimed_row(row, terms) for row in self.best_due(CLAIMED, lanes, priority, room, terms.now)]

    def best_due(
        self, columns: tuple[str, ...], lanes: list[str], priority: int, room: int, now: int
    ) -> list[Sequence[Any]]:
        """Read the most urgent due runs by `first_due`, from each lane at first only as many as are probably needed."""
        page = room if len(lanes) <= FEW_LANES else min(room, -(-2 * room // len(lanes)))
        by_time, lane_at = itemgetter(columns.index("run_at"), columns.index("id")), columns.index("lane")
        found: dict[str, Sequence[Sequence[Any]]] = {}
        best: list[Sequence[Any]] = []
        while lanes:
            found |= self.first_due(columns, lanes, priority, now, page)
            best = sorted(chain.from_iterable(found.values()), key=by_time)[:room]
            if page == room:
                break
            # If all runs of a lane's page are among the best, the lane may have more of them.
            among = Counter(row[lane_at] for row in best)
            lanes = [lane for lane in lanes if among[lane] == page]
            page = room
        return best

    def first_due(
        self, columns: tuple[str, ...], lanes: list[str], priority: int, now: int, page: int
    ) -> dict[str, Sequence[Sequence[Any]]]:
        """Read the first due runs of each lane that stand at no gate, and lock them, unless the dialect locks later."""
        return {lane: self.table(columns, DUE[False], lane, priority, now, page) for lane in lanes}


def queues_of(lanes: Iterable[str]) -> list[str]:
    """Return the queues of some lanes."""
    return sorted({queue_of(lane) for lane in lanes})


def _urgency(run: RunRow) -> tuple[int, int, str]:
    return -run.priority, run.run_at, run.id


def extend(tx: Tx, beats: Sequence[BeatRow], lease: float) -> list[Hold]:
    """Renew each lease that its token still holds, and store the report; return the state of each hold."""
    ids = sorted({beat.run_id for beat in beats})
    held = {
        run_id: (token, cancelling)
        for run_id, token, cancelling in tx.all(
            "SELECT id, token, cancelling FROM {runs} WHERE id {in} AND status = 'running' ORDER BY id {lock}",
            tx.many(ids),
        )
    }
    mine = [beat for beat in beats if held.get(beat.run_id, (None, 0))[0] == beat.token]
    if mine:
        until = tx.now + int(lease * SECOND)
        tx.run(
            "UPDATE {runs} SET lease_until = ? WHERE id {in}", until, tx.many(sorted({beat.run_id for beat in mine}))
        )
        reported = {beat.run_id: beat.live for beat in mine if beat.live is not None}
        tx.update("runs", ("live",), sorted(reported.items()))
    holds = []
    for beat in beats:
        token, cancelling = held.get(beat.run_id, (None, 0))
        holds.append(Hold.LOST if token != beat.token else Hold.CANCEL if cancelling else Hold.HELD)
    return holds


def lapsed(tx: Tx, limit: int, skip: int) -> list[RunRow]:
    """Read running runs whose lease is over, missing or impossibly long, without the first `skip`."""
    rows = tx.all(
        f"SELECT {RUN_COLUMNS} FROM {{runs}} WHERE status = 'running'"
        " AND (lease_until <= ? OR lease_until IS NULL OR lease_until > ?) ORDER BY lease_until, id LIMIT ? OFFSET ?",
        tx.now,
        tx.now + LONGEST_LEASE_US,
        limit,
        skip,
    )
    return [run_row(row) for row in rows]


def cancel(tx: Tx, run_ids: Sequence[str]) -> list[bool]:
    """Mark running runs to be stopped; return which of the runs were running."""
    ids = sorted(set(run_ids))
    running = {
        run_id
        for (run_id,) in tx.all(
            "SELECT id FROM {runs} WHERE id {in} AND status = 'running' ORDER BY id {lock}", tx.many(ids)
        )
    }
    if running:
        tx.run("UPDATE {runs} SET cancelling = 1 WHERE id {in}", tx.many(sorted(running)))
        tx.stirred = True
    return [run_id in running for run_id in run_ids]
