"""Runs in SQL: each function is one step inside a transaction, with its statements beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from mainspring.core.instants import SECOND
from mainspring.core.run import Condition, Status
from mainspring.jobstores.records.rows import FINAL_VALUES, MOST_ATTEMPTS, RunRow, SettleRow
from mainspring.jobstores.sqlalchemy.database import FusedTx, Row, Set, Tx
from mainspring.jobstores.sqlalchemy.schema import NEVER

__all__ = [
    "INSERTED",
    "RUN_COLUMNS",
    "count_totals",
    "delete_runs",
    "ends",
    "forget",
    "insert_runs",
    "inserted_row",
    "record_missed",
    "run_row",
    "settle",
    "unkeyed",
]

_IDENTITY: Final = ("id", "payload", "owner", "job_id", "created_at", "group_id")
_CHANGING: Final = (
    "state", "live", "queue", "status", "priority", "run_at", "finished_at", "keep", "token", "node", "lease_until",
    "attempt", "cancelling", "unique_key", "expires_at",
)  # fmt: skip
INSERTED: Final = (*_IDENTITY, *_CHANGING)
# What beats have reported stays where the new record says nothing of it.
_WRITTEN: Final[tuple[Set, ...]] = tuple(
    ("live", "COALESCE({new}, {old})") if name == "live" else name for name in _CHANGING
)
COLUMNS: Final = (*_IDENTITY, *_CHANGING[:-1], "claimed_at")
RUN_COLUMNS: Final = ", ".join(COLUMNS)
REMEMBERED: Final = 3600 * SECOND
LONGEST_LEASE: Final = 7 * 86400 * SECOND
"""A lease that ends later than this was given by nobody."""
NEXT_ATTEMPT: Final = f"CASE WHEN attempt < {MOST_ATTEMPTS} THEN attempt + 1 ELSE attempt END"
_BROKEN: Final = Status.BROKEN.value


def run_row(row: Sequence[Any]) -> RunRow:
    """Make a run's row of what was selected as RUN_COLUMNS."""
    return RunRow(
        id=row[0], call=row[1], owner=row[2], job_id=row[3], created_at=row[4], group=row[5], state=row[6],
        live=row[7], queue=row[8], status=row[9], priority=row[10], run_at=row[11], finished_at=row[12], keep=row[13],
        token=row[14], node=row[15], lease_until=row[16], attempt=row[17], cancelling=bool(row[18]), unique=row[19],
        claimed_at=row[20],
    )  # fmt: skip


def _changing(run: RunRow, now: int) -> Row:
    """Return the values of the columns that settling writes."""
    ended = run.status in FINAL_VALUES
    # Even, so that it is odd if `keep` is: pruning by count can tell by the index alone which runs to pass by.
    expires_at = (NEVER if run.status == _BROKEN else (now & -2) + run.keep) if ended else None
    return (
        run.state, run.live, run.queue, run.status, run.priority, run.run_at, run.finished_at, run.keep, run.token,
        run.node, run.lease_until, run.attempt, int(run.cancelling), None if ended else run.unique, expires_at,
    )  # fmt: skip


def inserted_row(run: RunRow, now: int) -> Row:
    """Return the values of INSERTED."""
    return (run.id, run.call, run.owner, run.job_id, run.created_at, run.group, *_changing(run, now))


def _insert(tx: Tx, runs: Iterable[RunRow]) -> None:
    now = tx.now
    tx.insert("runs", INSERTED, [inserted_row(run, now) for run in runs])


def unkeyed(runs: Iterable[RunRow]) -> bool:
    """Tell whether all runs wait and none has a unique key: then `insert_runs` is one statement where there is one."""
    return all(run.unique is None and run.status not in FINAL_VALUES for run in runs)


def insert_runs(tx: Tx, runs: Sequence[RunRow]) -> dict[str, str]:
    """Insert the runs that are new; answer for each id under which it is stored.

    An id that is known, also by a run deleted within the hour, changes nothing. Should somebody insert the same id or
    key between the look and the insert, the insert fails, and the whole transaction is begun again.
    """
    if not runs:
        return {}
    if isinstance(tx, FusedTx) and unkeyed(runs):
        rows = {run.id: inserted_row(run, 0) for run in reversed(runs)}  # the first of an id counts
        inserted = tx.insert_new(INSERTED, [rows[run_id] for run_id in sorted(rows)])
        tx.stirred |= any(run.status == "pending" for run in runs)
        return {run_id: run_id if run_id in inserted else "" for run_id in rows}
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
    tx.update("runs", _WRITTEN, [(run.id, *_changing(run, now)) for run in runs])


# -- ends and other outcomes ---------------------------------------------------------------------------------------


def ends(outcomes: Sequence[SettleRow]) -> bool:
    """Tell whether all outcomes are ends of different runs that are held: what `FusedTx.finish` can write."""
    return all(each.condition is Condition.HELD and each.run.status in FINAL_VALUES for each in outcomes) and len(
        {each.run.id for each in outcomes}
    ) == len(outcomes)


def settle(tx: Tx, outcomes: Sequence[SettleRow]) -> list[bool]:
    """Write each outcome whose condition holds, with what follows from it."""
    answers = _finish(tx, outcomes) if isinstance(tx, FusedTx) and ends(outcomes) else _settle(tx, outcomes)
    insert_runs(tx, [run for each, accepted in zip(outcomes, answers, strict=True) if accepted for run in each.then])
    return answers


def _finish(tx: FusedTx, outcomes: Sequence[SettleRow]) -> list[bool]:
    rows = sorted((each.run.id, *_changing(each.run, 0)) for each in outcomes)
    written = tx.finish(_WRITTEN, rows)
    return [each.run.id in written for each in outcomes]


def _settle(tx: Tx, outcomes: Sequence[SettleRow]) -> list[bool]:
    now = tx.now
    ids = sorted({outcome.run.id for outcome in outcomes})
    stored: dict[str, Sequence[Any]] = {
        row[0]: row[1:]
        for row in tx.table(
            ("id", "status", "token", "lease_until", "cancelling", "unique_key"),
            "FROM {runs} WHERE id {in} ORDER BY id {lock}",
            ids,
        )
    }
    holders = _holders(tx, outcomes, stored)
    answers = []
    written: dict[str, RunRow] = {}
    ended: Counter[str] = Counter()
    for outcome in outcomes:
        run = outcome.run
        before = stored.get(run.id)
        accepted = before is not None and _holds(outcome, before, now)
        final = run.status in FINAL_VALUES
        if accepted and run.unique is not None and not final:
            accepted = holders.setdefault(run.unique, run.id) == run.id
        answers.append(accepted)
        if not accepted:
            continue
        if run.live is None and run.id in written:
            run.live = written[run.id].live
        written[run.id] = run
        stored[run.id] = (run.status, run.token, run.lease_until, run.cancelling, None if final else run.unique)
        if final and before is not None and before[0] != run.status:  # else it is written again, not reached again
            ended[run.status] += 1
        tx.stirred |= run.status == "pending"
    _update(tx, [written[run_id] for run_id in sorted(written)])
    count_totals(tx, ended)
    return answers


def _holds(outcome: SettleRow, stored: Sequence[Any], now: int) -> bool:
    condition, run = outcome.condition, outcome.run
    status, present, lease_until, cancelling, _ = stored
    if present != run.token or (cancelling and status == "running" and run.status == "pending"):
        return False
    if condition is Condition.HELD:
        return bool(status == "running")
    if condition is Condition.EXPIRED:
        return bool(status == "running" and not now < (lease_until or 0) <= now + LONGEST_LEASE)
    if condition is Condition.WAITING:
        return bool(status == "pending")
    return status in FINAL_VALUES


def _holders(tx: Tx, outcomes: Sequence[SettleRow], stored: dict[str, Sequence[Any]]) -> dict[str, str]:
    """Return who has the unique keys that runs want back."""
    wanted = {
        each.run.unique
        for each in outcomes
        if each.run.unique is not None
        and each.run.status not in FINAL_VALUES
        and stored.get(each.run.id, (None,) * 5)[4] != each.run.unique
    }
    if not wanted:
        return {}
    return dict(
        tx.all("SELECT unique_key, id FROM {runs} WHERE unique_key {in} AND unique_key IS NOT NULL", sorted(wanted))
    )


def delete_runs(tx: Tx, run_ids: Sequence[str]) -> int:
    """Delete finished runs and remember their ids for an hour."""
    found = tx.all(
        "SELECT id FROM {runs} WHERE id {in} AND status NOT IN ('pending', 'running') ORDER BY id {lock}",
        sorted(set(run_ids)),
    )
    ids: list[Any] = [run_id for (run_id,) in found]
    if ids:
        forget(tx, ids)
    return len(ids)


def forget(tx: Tx, ids: list[Any]) -> None:
    """Delete runs that are locked, and remember their ids."""
    until = tx.now + REMEMBERED
    tx.database.forgotten += len(ids)
    tx.run("DELETE FROM {gone} WHERE id {in}", ids)
    tx.insert("gone", ("id", "expires_at"), [(run_id, until) for run_id in ids])
    tx.run("DELETE FROM {runs} WHERE id {in}", ids)


def count_totals(tx: Tx, ends: Counter[str]) -> None:
    """Count runs that have reached a final status."""
    slot = tx.database.slot
    for status, number in sorted(ends.items()):
        n = f"CASE WHEN n BETWEEN 0 AND {NEVER} THEN n ELSE 0 END"
        if not tx.run(f"UPDATE {{totals}} SET n = {n} + ? WHERE status = ? AND slot = ?", number, status, slot):
            tx.insert("totals", ("status", "slot", "n"), [(status, slot, number)])
