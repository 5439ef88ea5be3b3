"""Runs in SQL: each function is one step inside a transaction, with its statements beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from mainspring.clock import SECOND
from mainspring.jobstores._sql_database import Row, Tx
from mainspring.jobstores._sql_schema import NEVER
from mainspring.jobstores.base import Hold
from mainspring.jobstores.rows import FINAL_VALUES, BeatRow, RunRow, SettleRow
from mainspring.run import Condition, Status

__all__ = [
    "RUN_COLUMNS",
    "claim",
    "count_totals",
    "delete_runs",
    "expired",
    "extend",
    "forget",
    "insert_runs",
    "record_missed",
    "request_cancel",
    "run_row",
    "settle",
]

_IDENTITY: Final = ("id", "payload", "owner", "job_id", "created_at", "group_id")
_CHANGING: Final = (
    "state", "live", "queue", "status", "priority", "run_at", "finished_at", "keep", "token", "node", "lease_until",
    "attempt", "cancelling", "unique_key", "expires_at",
)  # fmt: skip
RUN_COLUMNS: Final = ", ".join((*_IDENTITY, *_CHANGING[:-1]))
REMEMBERED: Final = 3600 * SECOND
_BROKEN: Final = Status.BROKEN.value


def run_row(row: Row) -> RunRow:
    """Make a run's row of what was selected as RUN_COLUMNS."""
    return RunRow(
        id=row[0], call=row[1], owner=row[2], job_id=row[3], created_at=row[4], group=row[5], state=row[6],
        live=row[7], queue=row[8], status=row[9], priority=row[10], run_at=row[11], finished_at=row[12], keep=row[13],
        token=row[14], node=row[15], lease_until=row[16], attempt=row[17], cancelling=bool(row[18]), unique=row[19],
    )  # fmt: skip


def _changing(run: RunRow, now: int) -> Row:
    """Return the values of the columns that settling writes."""
    ended = run.status in FINAL_VALUES
    expires_at = (NEVER if run.status == _BROKEN else now + run.keep) if ended else None
    return (
        run.state, run.live, run.queue, run.status, run.priority, run.run_at, run.finished_at, run.keep, run.token,
        run.node, run.lease_until, run.attempt, int(run.cancelling), None if ended else run.unique, expires_at,
    )  # fmt: skip


def _insert(tx: Tx, runs: Iterable[RunRow]) -> None:
    now = tx.now
    tx.insert(
        "runs",
        (*_IDENTITY, *_CHANGING),
        [(run.id, run.call, run.owner, run.job_id, run.created_at, run.group, *_changing(run, now)) for run in runs],
    )


def insert_runs(tx: Tx, runs: Sequence[RunRow]) -> dict[str, str]:
    """Insert the runs that are new; answer for each id under which it is stored.

    An id that is known, also by a run deleted within the hour, changes nothing. Should somebody insert the same id or
    key between the look and the insert, the insert fails, and the whole transaction is begun again.
    """
    if not runs:
        return {}
    ids = sorted({run.id for run in runs})
    known = {
        run_id
        for (run_id,) in tx.all(
            "SELECT id FROM {runs} WHERE id {in} UNION ALL SELECT id FROM {gone} WHERE id {in} AND expires_at > ?",
            ids,
            ids,
            tx.now,
        )
    }
    keys = sorted({run.unique for run in runs if run.unique is not None})
    holders: dict[str, str] = {}
    if keys:
        holders = dict(
            tx.all("SELECT unique_key, id FROM {runs} WHERE unique_key {in} AND unique_key IS NOT NULL", keys)
        )
    new: dict[str, RunRow] = {}
    answers: dict[str, str] = {}
    for run in runs:
        if run.id in new or run.id in answers:
            continue
        if run.id in known:
            answers[run.id] = ""
        elif run.unique is not None and holders.setdefault(run.unique, run.id) != run.id:
            answers[run.id] = holders[run.unique]
        else:
            new[run.id] = run
            answers[run.id] = run.id
            tx.stirred |= run.status == "pending"
    _insert(tx, (new[run_id] for run_id in sorted(new)))
    return answers


def record_missed(tx: Tx, runs: Sequence[RunRow]) -> None:
    """Insert the records of missed fires, or replace them by longer ones."""
    if not runs:
        return
    last = {run.id: run for run in runs}
    ids = sorted(last)
    known = {run_id for (run_id,) in tx.all("SELECT id FROM {runs} WHERE id {in} ORDER BY id {lock}", ids)}
    _insert(tx, (last[run_id] for run_id in ids if run_id not in known))
    _update(tx, [last[run_id] for run_id in ids if run_id in known])
    count_totals(tx, Counter(last[run_id].status for run_id in ids if run_id not in known))


def _update(tx: Tx, runs: Sequence[RunRow]) -> None:
    now = tx.now
    # What beats have reported stays where the new record says nothing of it.
    columns = tuple(("live", "COALESCE({new}, {old})") if name == "live" else name for name in _CHANGING)
    tx.update("runs", columns, [(run.id, *_changing(run, now)) for run in runs])


# -- claims --------------------------------------------------------------------------------------------------------


def claim(
    tx: Tx, lanes: Sequence[str], node: str, token: str, limit: int, lease: float
) -> tuple[int, list[RunRow], int | None]:
    """Lease due runs of some lanes, or say again which are held under this token."""
    now = tx.now
    held = tx.all(f"SELECT {RUN_COLUMNS} FROM {{runs}} WHERE status = 'running' AND token = ?", token)
    levels = _levels(tx, sorted(set(lanes)))
    if held or limit <= 0:
        rows = sorted(map(run_row, held), key=_urgency)
        return now, rows, min((first for _, _, first in levels), default=None)
    claimed: list[RunRow] = []
    left_over = [first for _, _, first in levels if first > now]
    due = [level for level in levels if level[2] <= now]
    for priority in sorted({level[1] for level in due}, reverse=True):
        peers = [level for level in due if level[1] == priority]
        room = limit - len(claimed)
        if room <= 0:
            left_over += [first for _, _, first in peers]
            continue
        found = [run for queue, _, _ in peers for run in _take(tx, queue, priority, room, now)]
        found.sort(key=_urgency)
        left_over += [run.run_at for run in found[room : room + 1]]
        claimed += found[:room]
    if claimed:
        until = now + int(lease * SECOND)
        tx.run(
            "UPDATE {runs} SET status = 'running', attempt = attempt + 1, node = ?, token = ?, lease_until = ?"
            " WHERE id {in}",
            node,
            token,
            until,
            sorted(run.id for run in claimed),
        )
        for run in claimed:
            run.status, run.node, run.token, run.lease_until = "running", node, token, until
            run.attempt += 1
    later = [_next_of(tx, queue, priority, now, full=len(claimed) >= limit) for queue, priority, _ in due]
    return now, claimed, min((at for at in (*left_over, *later) if at is not None), default=None)


def _urgency(run: RunRow) -> tuple[int, int, str]:
    return -run.priority, run.run_at, run.id


def _levels(tx: Tx, lanes: list[str]) -> list[tuple[str, int, int]]:
    """Return each priority at which runs wait in a lane that is not paused, and the time of the first of them.

    The index is entered once per priority. Runs that are not due yet, however many, are passed by.
    """
    if not lanes:
        return []
    names = " UNION ALL ".join(["SELECT {param} AS name"] * len(lanes))
    rows = tx.all(
        f"""
        WITH RECURSIVE wanted AS ({names}),
        level(queue, priority) AS (
            SELECT name, (SELECT max(priority) FROM {{runs}} WHERE status = 'pending' AND queue = name)
              FROM wanted WHERE name NOT IN (SELECT name FROM {{lanes}})
            UNION ALL
            SELECT queue, (SELECT max(r.priority) FROM {{runs}} r
                            WHERE r.status = 'pending' AND r.queue = level.queue AND r.priority < level.priority)
              FROM level WHERE priority IS NOT NULL)
        SELECT queue, priority, (SELECT min(r.run_at) FROM {{runs}} r WHERE r.status = 'pending'
                                    AND r.queue = level.queue AND r.priority = level.priority)
          FROM level WHERE priority IS NOT NULL
        """,
        *lanes,
    )
    return [(queue, priority, first) for queue, priority, first in rows if first is not None]


def _take(tx: Tx, queue: str, priority: int, limit: int, now: int) -> list[RunRow]:
    rows = tx.all(
        f"SELECT {RUN_COLUMNS} FROM {{runs}} WHERE status = 'pending' AND queue = ? AND priority = ? AND run_at <= ?"
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
        "SELECT min(run_at) FROM {runs} WHERE status = 'pending' AND queue = ? AND priority = ? AND run_at > ?",
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


def settle(tx: Tx, outcomes: Sequence[SettleRow]) -> list[bool]:
    """Write each outcome whose condition holds, with what follows from it."""
    now = tx.now
    ids = sorted({outcome.run.id for outcome in outcomes})
    stored: dict[str, Row] = {
        row[0]: row[1:]
        for row in tx.all(
            "SELECT id, status, token, lease_until, unique_key FROM {runs} WHERE id {in} ORDER BY id {lock}", ids
        )
    }
    holders = _holders(tx, outcomes, stored)
    answers = []
    written: dict[str, RunRow] = {}
    followers: list[RunRow] = []
    ends: Counter[str] = Counter()
    for outcome in outcomes:
        run = outcome.run
        before = stored.get(run.id)
        accepted = before is not None and _holds(outcome.condition, before, run.token, now)
        ended = run.status in FINAL_VALUES
        if accepted and run.unique is not None and not ended:
            accepted = holders.setdefault(run.unique, run.id) == run.id
        answers.append(accepted)
        if not accepted:
            continue
        if run.live is None and run.id in written:
            run.live = written[run.id].live
        written[run.id] = run
        stored[run.id] = (run.status, run.token, run.lease_until, None if ended else run.unique)
        followers += outcome.then
        if ended:
            ends[run.status] += 1
        tx.stirred |= run.status == "pending"
    _update(tx, [written[run_id] for run_id in sorted(written)])
    insert_runs(tx, followers)
    count_totals(tx, ends)
    return answers


def _holds(condition: Condition, stored: Row, token: str | None, now: int) -> bool:
    status, present, lease_until, _ = stored
    if present != token:
        return False
    if condition is Condition.HELD:
        return bool(status == "running")
    if condition is Condition.EXPIRED:
        return bool(status == "running" and (lease_until or 0) <= now)
    if condition is Condition.WAITING:
        return bool(status == "pending")
    return status in FINAL_VALUES


def _holders(tx: Tx, outcomes: Sequence[SettleRow], stored: dict[str, Row]) -> dict[str, str]:
    """Return who has the unique keys that runs want back."""
    wanted = {
        each.run.unique
        for each in outcomes
        if each.run.unique is not None
        and each.run.status not in FINAL_VALUES
        and stored.get(each.run.id, (None,) * 4)[3] != each.run.unique
    }
    if not wanted:
        return {}
    return dict(
        tx.all("SELECT unique_key, id FROM {runs} WHERE unique_key {in} AND unique_key IS NOT NULL", sorted(wanted))
    )


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


def delete_runs(tx: Tx, run_ids: Sequence[str]) -> int:
    """Delete finished runs and remember their ids for an hour."""
    found = tx.all(
        "SELECT id FROM {runs} WHERE id {in} AND expires_at IS NOT NULL ORDER BY id {lock}", sorted(set(run_ids))
    )
    ids: list[Any] = [run_id for (run_id,) in found]
    if ids:
        forget(tx, ids)
    return len(ids)


def forget(tx: Tx, ids: list[Any]) -> None:
    """Delete runs that are locked."""
    until = tx.now + REMEMBERED
    tx.run("DELETE FROM {gone} WHERE id {in}", ids)
    tx.insert("gone", ("id", "expires_at"), [(run_id, until) for run_id in ids])
    tx.run("DELETE FROM {runs} WHERE id {in}", ids)


def count_totals(tx: Tx, ends: Counter[str]) -> None:
    """Count runs that have reached a final status."""
    slot = tx.database.slot
    for status, number in sorted(ends.items()):
        if not tx.run("UPDATE {totals} SET n = n + ? WHERE status = ? AND slot = ?", number, status, slot):
            tx.insert("totals", ("status", "slot", "n"), [(status, slot, number)])
