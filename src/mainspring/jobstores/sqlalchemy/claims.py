"""Claims in SQL: due runs are leased, leases renewed, and those found that nobody renews."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from mainspring.core.instants import SECOND
from mainspring.jobstores.base import Hold
from mainspring.jobstores.records.rows import MOST_ATTEMPTS, BeatRow, RunRow
from mainspring.jobstores.sqlalchemy.database import FusedTx, Row, Tx
from mainspring.jobstores.sqlalchemy.runs import COLUMNS, LONGEST_LEASE, NEXT_ATTEMPT, RUN_COLUMNS, run_row

__all__ = ["claim", "expired", "extend", "request_cancel"]

FEW: Final = 4
"""Lanes that are each read for as many runs as are wanted of all."""
ASKED: Final = 100
"""Lanes that MariaDB is asked for by one statement."""


def claim(
    tx: Tx, lanes: Sequence[str], node: str, token: str, limit: int, lease: float
) -> tuple[int, list[RunRow], int | None]:
    """Lease due runs of some lanes, or say again which are held under this token.

    A `FusedTx` needs no transaction for it: what was taken before a reply was lost is held under the token.
    """
    now, held = _held(tx, token)
    levels = _levels(tx, sorted(set(lanes)))
    if held or limit <= 0:
        rows = sorted(map(run_row, held), key=_urgency)
        return now, rows, min((first for _, _, first in levels), default=None)
    claimed: list[RunRow] = []
    terms = (node, token, now + int(lease * SECOND), now)
    next_ones = [first for _, _, first in levels if first > now]
    due = [level for level in levels if level[2] <= now]
    looked: list[tuple[str, int]] = []
    for priority in sorted({level[1] for level in due}, reverse=True):
        peers = sorted((first, queue) for queue, level, first in due if level == priority)
        # No lane whose first run comes after those of as many others as there is room for has one of the most urgent.
        room = limit - len(claimed)
        next_ones += [first for first, _ in peers[room:]]
        queues = [queue for _, queue in peers[:room]]
        looked += [(queue, priority) for queue in queues]
        if queues and isinstance(tx, FusedTx):
            claimed += _take(tx, queues, priority, now, room, terms)
        elif queues:
            claimed += _lock(tx, queues, priority, now, room)
    if not isinstance(tx, FusedTx):
        _start(tx, claimed, terms)
    # Due ones are left only if the claim was full, else others have them.
    next_ones += _next_of(tx, looked, 0 if len(claimed) >= limit else now)
    return now, claimed, min(next_ones, default=None)


def _held(tx: Tx, token: str) -> tuple[int, list[Row]]:
    """Return now, and the runs that are held under a token."""
    if isinstance(tx, FusedTx):
        return tx.held(RUN_COLUMNS, token)
    return tx.now, tx.all(f"SELECT {RUN_COLUMNS} FROM {{runs}} WHERE status = 'running' AND token = ?", token)


def _start(tx: Tx, locked: Sequence[RunRow], terms: tuple[str, str, int, int]) -> None:
    """Give locked runs to a node under a token until a time, from now on."""
    if locked:
        tx.run(
            f"UPDATE {{runs}} SET status = 'running', attempt = {NEXT_ATTEMPT}, node = ?, token = ?, lease_until = ?,"
            " claimed_at = ? WHERE id {in}",
            *terms,
            sorted(run.id for run in locked),
        )
        for run in locked:
            run.status = "running"
            run.node, run.token, run.lease_until, run.claimed_at = terms
            run.attempt = min(run.attempt, MOST_ATTEMPTS) + 1


def _urgency(run: RunRow) -> tuple[int, int, str]:
    return -run.priority, run.run_at, run.id


def _levels(tx: Tx, lanes: list[str]) -> list[tuple[str, int, int]]:
    """Return each priority at which runs wait in a lane that is not paused, and the time of the first of them.

    The index is entered once per priority. Runs that are not due yet, however many, are passed by. Not by min and max:
    PostgreSQL may compute those by reading all that waits.
    """
    if not lanes:
        return []
    if tx.database.kind == "mysql":
        return _walk(tx, lanes)
    one = len(lanes) == 1
    rows = tx.all(
        f"""
        WITH RECURSIVE wanted AS ({"SELECT {param} AS name" if one else "{each}"}),
        level(queue, priority) AS (
            SELECT name, (SELECT r.priority FROM {{runs}} r WHERE r.status = 'pending' AND r.queue = name
                           ORDER BY r.priority DESC LIMIT 1)
              FROM wanted WHERE name NOT IN (SELECT name FROM {{lanes}})
            UNION ALL
            SELECT queue, (SELECT r.priority FROM {{runs}} r WHERE r.status = 'pending'
                              AND r.queue = level.queue AND r.priority < level.priority
                            ORDER BY r.priority DESC LIMIT 1)
              FROM level WHERE priority IS NOT NULL)
        SELECT queue, priority, (SELECT r.run_at FROM {{runs}} r WHERE r.status = 'pending'
                                    AND r.queue = level.queue AND r.priority = level.priority
                                  ORDER BY r.run_at LIMIT 1)
          FROM level WHERE priority IS NOT NULL
        """,
        *(lanes if one else [lanes]),
    )
    return [(queue, priority, first) for queue, priority, first in rows if first is not None]


def _walk(tx: Tx, lanes: list[str]) -> list[tuple[str, int, int]]:
    """Return the levels of lanes step by step: MariaDB would read all that waits to find the next in a recursion."""
    wanted = set(lanes)
    if len(lanes) > ASKED:
        wanted &= {name for (name,) in tx.all("SELECT DISTINCT queue FROM {runs} WHERE status = 'pending'")}
    wanted -= {name for (name,) in tx.all("SELECT name FROM {lanes}")}
    above = dict.fromkeys(sorted(wanted), 2**31)
    found: list[tuple[str, int]] = []
    highest = "(SELECT max(priority) FROM {runs} WHERE status = 'pending' AND queue = ? AND priority < ?)"
    while above:
        levels = _of_each(tx, highest, list(above.items()))
        above = {lane: priority for lane, priority in zip(above, levels, strict=True) if priority is not None}
        found += above.items()
    first = "(SELECT min(run_at) FROM {runs} WHERE status = 'pending' AND queue = ? AND priority = ?)"
    firsts = _of_each(tx, first, found)
    return [(*level, run_at) for level, run_at in zip(found, firsts, strict=True) if run_at is not None]


def _of_each(tx: Tx, expression: str, params: Sequence[Row]) -> list[Any]:
    """Return the value of an expression for each of some parameters."""
    values: list[Any] = []
    for start in range(0, len(params), ASKED):
        some = params[start : start + ASKED]
        values += tx.all(f"SELECT {', '.join([expression] * len(some))}", *chain.from_iterable(some))[0]
    return values


def _take(tx: FusedTx, queues: list[str], priority: int, now: int, room: int, terms: Row) -> list[RunRow]:
    """Claim due runs of some lanes; of many lanes a page at a time, so as not to lock all that is due in each."""
    taken: list[RunRow] = []
    while queues and (left := room - len(taken)) > 0:
        page = left if len(queues) <= FEW else -(-2 * left // len(queues))
        some = [run_row(row) for row in tx.take(RUN_COLUMNS, queues, priority, now, left, page, terms)]
        taken += some
        number = Counter(run.queue for run in some)
        queues = [queue for queue in queues if number[queue] >= page] if page < left else []
    return sorted(taken, key=_urgency)


def _lock(tx: Tx, queues: list[str], priority: int, now: int, room: int) -> list[RunRow]:
    """Lock the most urgent due runs of some lanes; of each no more are read at first than are likely to be needed."""
    page = room if len(queues) <= FEW else min(room, -(-2 * room // len(queues)))
    found: dict[str, list[RunRow]] = {}
    best: list[RunRow] = []
    while queues:
        found |= {queue: _lock_lane(tx, queue, priority, page, now) for queue in queues}
        best = sorted((run for runs in found.values() for run in runs), key=_urgency)[:room]
        if page == room:
            break
        # A lane whose page is wholly among the best may have more of them.
        among = Counter(run.queue for run in best)
        queues = [queue for queue in queues if among[queue] == page]
        page = room
    return best


def _lock_lane(tx: Tx, queue: str, priority: int, limit: int, now: int) -> list[RunRow]:
    rows = tx.table(
        COLUMNS,
        "FROM {runs} WHERE status = 'pending' AND queue = ? AND priority = ? AND run_at <= ?"
        " ORDER BY run_at LIMIT ? {skip}",
        queue,
        priority,
        now,
        limit,
    )
    return [run_row(row) for row in rows]


def _next_of(tx: Tx, levels: Sequence[tuple[str, int]], after: int) -> list[int]:
    """Return when the first runs at some levels can be had, of those after a time."""
    first = (
        "SELECT r.run_at FROM {runs} r WHERE r.status = 'pending'"
        " AND r.queue = %s AND r.priority = %s AND r.run_at > ? ORDER BY r.run_at LIMIT 1"
    )
    if len(levels) <= 1:
        return [run_at for level in levels for (run_at,) in tx.all(first % ("?", "?"), *level, after)]
    if tx.database.kind == "mysql":
        times = _of_each(tx, f"({first % ('?', '?')})", [(*level, after) for level in levels])
    else:
        params: list[Any] = [list(levels)]
        if tx.database.kind == "postgresql":
            params = [[queue for queue, _ in levels], [priority for _, priority in levels]]
        first %= ("level.queue", "level.priority")
        times = [run_at for (run_at,) in tx.all(f"SELECT ({first}) FROM {{levels}}", after, *params)]
    return [run_at for run_at in times if run_at is not None]


def extend(tx: Tx, beats: Sequence[BeatRow], lease: float) -> list[Hold]:
    """Renew leases and keep what their holders report."""
    ids = sorted({beat.run_id for beat in beats})
    held = {
        run_id: (token, cancelling)
        for run_id, token, cancelling in tx.all(
            "SELECT id, token, cancelling FROM {runs} WHERE id {in} AND status = 'running' ORDER BY id {lock}", ids
        )
    }
    mine = [beat for beat in beats if held.get(beat.run_id, (None, 0))[0] == beat.token]
    if mine:
        until = tx.now + int(lease * SECOND)
        tx.run("UPDATE {runs} SET lease_until = ? WHERE id {in}", until, sorted({beat.run_id for beat in mine}))
        reported = {beat.run_id: beat.live for beat in mine if beat.live is not None}
        tx.update("runs", ("live",), sorted(reported.items()))
    holds = []
    for beat in beats:
        token, cancelling = held.get(beat.run_id, (None, 0))
        holds.append(Hold.LOST if token != beat.token else Hold.CANCEL if cancelling else Hold.HELD)
    return holds


def expired(tx: Tx, limit: int, skip: int) -> list[RunRow]:
    """Read running runs whose lease is over, without the first `skip`."""
    rows = tx.all(
        f"SELECT {RUN_COLUMNS} FROM {{runs}} WHERE status = 'running'"
        " AND (lease_until <= ? OR lease_until IS NULL OR lease_until > ?) ORDER BY lease_until, id LIMIT ? OFFSET ?",
        tx.now,
        tx.now + LONGEST_LEASE,
        limit,
        skip,
    )
    return [run_row(row) for row in rows]


def request_cancel(tx: Tx, run_ids: Sequence[str]) -> list[bool]:
    """Mark running runs to be stopped."""
    ids = sorted(set(run_ids))
    running = {
        run_id
        for (run_id,) in tx.all("SELECT id FROM {runs} WHERE id {in} AND status = 'running' ORDER BY id {lock}", ids)
    }
    if running:
        tx.run("UPDATE {runs} SET cancelling = 1 WHERE id {in}", sorted(running))
        tx.stirred = True
    return [run_id in running for run_id in run_ids]
