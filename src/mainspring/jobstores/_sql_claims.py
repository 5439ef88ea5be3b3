"""Claims in SQL: due runs are leased, leases renewed, and those found that nobody renews."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from mainspring.clock import SECOND
from mainspring.jobstores._sql_database import FusedTx, Row, Tx
from mainspring.jobstores._sql_runs import COLUMNS, RUN_COLUMNS, run_row
from mainspring.jobstores.base import Hold
from mainspring.jobstores.rows import BeatRow, RunRow

__all__ = ["claim", "expired", "extend", "request_cancel"]


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
    locked: list[RunRow] = []
    terms = (node, token, now + int(lease * SECOND))
    left_over = [first for _, _, first in levels if first > now]
    due = [level for level in levels if level[2] <= now]
    for priority in sorted({level[1] for level in due}, reverse=True):
        peers = [level for level in due if level[1] == priority]
        room = limit - len(claimed)
        if room <= 0:
            left_over += [first for _, _, first in peers]
        elif isinstance(tx, FusedTx):
            taken = tx.take(RUN_COLUMNS, [queue for queue, _, _ in peers], priority, now, room, terms)
            claimed += sorted(map(run_row, taken), key=_urgency)
        else:
            found = [run for queue, _, _ in peers for run in _lock(tx, queue, priority, room, now)]
            found.sort(key=_urgency)
            left_over += [run.run_at for run in found[room : room + 1]]
            locked += found[:room]
            claimed += found[:room]
    _start(tx, locked, terms)
    later = [_next_of(tx, queue, priority, now, full=len(claimed) >= limit) for queue, priority, _ in due]
    return now, claimed, min((at for at in (*left_over, *later) if at is not None), default=None)


def _held(tx: Tx, token: str) -> tuple[int, list[Row]]:
    """Return now, and the runs that are held under a token."""
    if isinstance(tx, FusedTx):
        return tx.held(RUN_COLUMNS, token)
    return tx.now, tx.all(f"SELECT {RUN_COLUMNS} FROM {{runs}} WHERE status = 'running' AND token = ?", token)


def _start(tx: Tx, locked: Sequence[RunRow], terms: tuple[str, str, int]) -> None:
    """Give locked runs to a node under a token until a time."""
    if locked:
        tx.run(
            "UPDATE {runs} SET status = 'running', attempt = attempt + 1, node = ?, token = ?, lease_until = ?"
            " WHERE id {in}",
            *terms,
            sorted(run.id for run in locked),
        )
        for run in locked:
            run.status = "running"
            run.node, run.token, run.lease_until = terms
            run.attempt += 1


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
    names = " UNION ALL ".join(["SELECT {param} AS name"] * len(lanes))
    rows = tx.all(
        f"""
        WITH RECURSIVE wanted AS ({names}),
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
        *lanes,
    )
    return [(queue, priority, first) for queue, priority, first in rows if first is not None]


def _walk(tx: Tx, lanes: list[str]) -> list[tuple[str, int, int]]:
    """Return the levels of lanes step by step: MariaDB would read all that waits to find the next in a recursion."""
    paused = {name for (name,) in tx.all("SELECT name FROM {lanes} WHERE name {in}", lanes)}
    above = {lane: 2**31 for lane in lanes if lane not in paused}
    found: list[tuple[str, int]] = []
    highest = "(SELECT max(priority) FROM {runs} WHERE status = 'pending' AND queue = ? AND priority < ?)"
    while above:
        [row] = tx.all(f"SELECT {', '.join([highest] * len(above))}", *chain.from_iterable(above.items()))
        above = {lane: priority for lane, priority in zip(above, row, strict=True) if priority is not None}
        found += above.items()
    if not found:
        return []
    first = "(SELECT min(run_at) FROM {runs} WHERE status = 'pending' AND queue = ? AND priority = ?)"
    [row] = tx.all(f"SELECT {', '.join([first] * len(found))}", *chain.from_iterable(found))
    return [(*level, run_at) for level, run_at in zip(found, row, strict=True) if run_at is not None]


def _lock(tx: Tx, queue: str, priority: int, limit: int, now: int) -> list[RunRow]:
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


def _next_of(tx: Tx, queue: str, priority: int, now: int, *, full: bool) -> int | None:
    """Return when the next run can be had; due ones are left only if the claim was full, else others have them."""
    row = tx.one(
        "SELECT run_at FROM {runs} WHERE status = 'pending' AND queue = ? AND priority = ? AND run_at > ?"
        " ORDER BY run_at LIMIT 1",
        queue,
        priority,
        0 if full else now,
    )
    return None if row is None else row[0]


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


def expired(tx: Tx, limit: int) -> list[RunRow]:
    """Read running runs whose lease is over."""
    rows = tx.all(
        f"SELECT {RUN_COLUMNS} FROM {{runs}} WHERE status = 'running' AND lease_until <= ? LIMIT ?", tx.now, limit
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
