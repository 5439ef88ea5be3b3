"""Runs in SQL: add, settle and delete, with the statements beside each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, Final

from mainspring.core.instants import SECOND
from mainspring.core.run import Condition, Status
from mainspring.jobstores.records.rows import FINAL_VALUES, MOST_ATTEMPTS, RunRow, SettleRow
from mainspring.jobstores.sqlalchemy.schema import NEVER
from mainspring.jobstores.sqlalchemy.transaction import Row, Set, Tx

__all__ = [
    "COLUMNS", "INSERTED", "LONGEST_LEASE_US", "NEXT_ATTEMPT", "RUN_COLUMNS", "WRITTEN", "RunVerbs", "delete_runs",
    "ends", "forget", "inserted_row", "run_row", "unkeyed", "written_row",
]  # fmt: skip

_IDENTITY: Final = ("payload", "owner", "job_id", "created_at", "group_id")
_CHANGING: Final = (
    "state", "live", "queue", "status", "priority", "run_at", "finished_at", "keep", "token", "node", "lease_until",
    "attempt", "cancelling", "unique_key", "expires_at",
)  # fmt: skip
INSERTED: Final = ("id", *_CHANGING, *_IDENTITY)
# Keep the reports of heartbeats where the new record has none.
WRITTEN: Final[tuple[Set, ...]] = tuple(
    ("live", "COALESCE({new}, {old})") if name == "live" else name for name in _CHANGING
)
COLUMNS: Final = ("id", *_IDENTITY, *_CHANGING[:-1], "claimed_at")
RUN_COLUMNS: Final = ", ".join(COLUMNS)
IDS_REMEMBERED_US: Final = 3600 * SECOND
LONGEST_LEASE_US: Final = 7 * 86400 * SECOND
"""No lease ends later than this."""
NEXT_ATTEMPT: Final = f"CASE WHEN attempt < {MOST_ATTEMPTS} THEN attempt + 1 ELSE attempt END"
_id: Final = attrgetter("id")
_unique: Final = attrgetter("unique")
_BROKEN: Final = Status.BROKEN.value
_JUDGED: Final = ("id", "status", "token", "lease_until", "cancelling", "unique_key")
_KNOWN: Final = "SELECT id FROM {runs} WHERE id {in} UNION ALL SELECT id FROM {gone} WHERE id {in} AND expires_at > ?"
_HOLDERS: Final = "SELECT unique_key, id FROM {runs} WHERE unique_key {in} AND unique_key IS NOT NULL"
_COUNT: Final = (
    f"UPDATE {{totals}} SET n = CASE WHEN n BETWEEN 0 AND {NEVER} THEN n ELSE 0 END + ? WHERE status = ? AND slot = ?"
)


def run_row(row: Sequence[Any]) -> RunRow:
    """Build a run's row from the values of RUN_COLUMNS."""
    return RunRow(
        id=row[0], call=row[1], owner=row[2], job_id=row[3], created_at=row[4], group=row[5], state=row[6],
        live=row[7], queue=row[8], status=row[9], priority=row[10], run_at=row[11], finished_at=row[12], keep=row[13],
        token=row[14], node=row[15], lease_until=row[16], attempt=row[17], cancelling=bool(row[18]), unique=row[19],
        claimed_at=row[20],
    )  # fmt: skip


def written_row(run: RunRow, now: int) -> Row:
    """Return a run's id and the values of WRITTEN."""
    ended = run.status in FINAL_VALUES
    # Make it even, so that the sum is odd if `keep` is: pruning by count sees in the index which runs to skip.
    expires_at = (NEVER if run.status == _BROKEN else (now & -2) + run.keep) if ended else None
    return (
        run.id, run.state, run.live, run.queue, run.status, run.priority, run.run_at, run.finished_at, run.keep,
        run.token, run.node, run.lease_until, run.attempt, int(run.cancelling), None if ended else run.unique,
        expires_at,
    )  # fmt: skip


def inserted_row(run: RunRow, now: int) -> Row:
    """Return the values of INSERTED."""
    return (*written_row(run, now), run.call, run.owner, run.job_id, run.created_at, run.group)


def unkeyed(runs: Iterable[RunRow]) -> bool:
    """Return True if all runs wait and none has a unique key."""
    return all(run.unique is None and run.status not in FINAL_VALUES for run in runs)


def ends(outcomes: Sequence[SettleRow]) -> bool:
    """Return True if all outcomes end different runs that are still held."""
    return all(each.condition is Condition.HELD and each.run.status in FINAL_VALUES for each in outcomes) and len(
        {each.run.id for each in outcomes}
    ) == len(outcomes)


class RunVerbs(Tx):
    """Adds and settles runs, in statements that every dialect has."""

    def add_runs(self, runs: Sequence[RunRow]) -> dict[str, str]:
        """Insert the new runs; return for each id the id under which it is stored.

        A known id changes nothing; the id of a deleted run stays known for an hour. If another node inserts the same id
        or key between the check and the insert, the insert fails and the whole transaction starts again.
        """
        if not self.begun:
            self.begin()
        ids = self.many(sorted(set(map(_id, runs))))
        known = set(chain.from_iterable(self.all(_KNOWN, ids, ids, self.now)))
        keys = sorted(set(map(_unique, runs)) - {None})
        holders: dict[str, str] = dict(self.all(_HOLDERS, self.many(keys))) if keys else {}
        new: dict[str, RunRow] = {}
        answers: dict[str, str] = {}
        for run in runs:
            if run.id in answers:
                continue
            answers[run.id] = run.id
            if run.id in known:
                answers[run.id] = ""
            elif run.unique is not None and holders.setdefault(run.unique, run.id) != run.id:
                answers[run.id] = holders[run.unique]
            else:
                new[run.id] = run
                self.stirred |= run.status == "pending"
        if new:
            self.insert("runs", INSERTED, list(map(inserted_row, map(new.__getitem__, sorted(new)), repeat(self.now))))
        return answers

    def record_missed(self, runs: Sequence[RunRow]) -> None:
        """Insert the records of missed fires, or replace them by longer ones."""
        last = {run.id: run for run in runs}
        ids = sorted(last)
        locked = self.all("SELECT id FROM {runs} WHERE id {in} ORDER BY id {lock}", self.many(ids))
        known = {run_id for (run_id,) in locked}
        new = [last[run_id] for run_id in ids if run_id not in known]
        self.insert("runs", INSERTED, [inserted_row(run, self.now) for run in new])
        self.update("runs", WRITTEN, [written_row(last[run_id], self.now) for run_id in ids if run_id in known])
        self.count_ends(Counter(run.status for run in new))

    def settle(self, outcomes: Sequence[SettleRow]) -> list[bool]:
        """Write each outcome whose condition holds, with its follow-ups."""
        if not self.begun:
            self.begin()
        now, locked = self.now, self.many(sorted({each.run.id for each in outcomes}))
        rows = self.table(_JUDGED, "FROM {runs} WHERE id {in} ORDER BY id {lock}", locked)
        stored = {run_id: tuple(row) for run_id, *row in rows}
        holders = self._holders(outcomes, stored)
        answers = []
        written: dict[str, RunRow] = {}
        ended: Counter[str] = Counter()
        follow: list[RunRow] = []
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
            if final and before is not None and before[0] != run.status:  # otherwise it is written again
                ended[run.status] += 1
            self.stirred |= run.status == "pending"
            follow += outcome.then
        if written:
            self.update("runs", WRITTEN, [written_row(written[run_id], now) for run_id in sorted(written)])
            self.count_ends(ended)
        if follow:
            self.add_runs(follow)
        return answers

    def _holders(self, outcomes: Sequence[SettleRow], stored: Mapping[str, Row]) -> dict[str, str]:
        """Return which runs hold the unique keys that other runs want back."""
        wanted: set[str] = set()
        for each in outcomes:
            run = each.run
            if run.unique is not None and run.status not in FINAL_VALUES:
                wanted |= {run.unique}.difference(stored.get(run.id, ())[-1:])
        return dict(self.all(_HOLDERS, self.many(sorted(wanted)))) if wanted else {}

    def count_ends(self, ended: Counter[str]) -> None:
        """Count runs that have reached a final status."""
        slot = self.database.slot
        for status in sorted(ended):
            if not self.run(_COUNT, ended[status], status, slot):
                self.insert("totals", ("status", "slot", "n"), [(status, slot, ended[status])])


def _holds(outcome: SettleRow, stored: Row, now: int) -> bool:
    condition, run = outcome.condition, outcome.run
    status, present, lease_until, cancelling, _ = stored
    if present != run.token or (cancelling and status == "running" and run.status == "pending"):
        return False
    if condition is Condition.HELD:
        return bool(status == "running")
    if condition is Condition.EXPIRED:
        return bool(status == "running" and not now < (lease_until or 0) <= now + LONGEST_LEASE_US)
    if condition is Condition.WAITING:
        return bool(status == "pending")
    return status in FINAL_VALUES


# -- deleting ------------------------------------------------------------------------------------------------------


def delete_runs(tx: Tx, run_ids: Sequence[str]) -> int:
    """Delete finished runs and remember their ids for an hour."""
    found = tx.all(
        "SELECT id FROM {runs} WHERE id {in} AND status NOT IN ('pending', 'running') ORDER BY id {lock}",
        tx.many(sorted(set(run_ids))),
    )
    forget(tx, [run_id for (run_id,) in found])
    return len(found)


def forget(tx: Tx, ids: list[str]) -> None:
    """Delete locked runs, and remember their ids."""
    if ids:
        until, those = tx.now + IDS_REMEMBERED_US, tx.many(ids)
        tx.database.forgotten += len(ids)
        tx.run("DELETE FROM {gone} WHERE id {in}", those)
        tx.insert("gone", ("id", "expires_at"), [(run_id, until) for run_id in ids])
        tx.run("DELETE FROM {runs} WHERE id {in}", those)
