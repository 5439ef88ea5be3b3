"""Add, settle and delete runs in SQL, with the statements beside each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, ClassVar, Final, NamedTuple

from mainspring.core.run import Condition, Status
from mainspring.jobstores.records.rows import FINAL_VALUES, MOST_ATTEMPTS, RunRow, SettleRow, gate_of
from mainspring.jobstores.sqlalchemy.schema import NEVER
from mainspring.jobstores.sqlalchemy.transaction import Row, Set
from mainspring.jobstores.sqlalchemy.waiting.edges import EdgeVerbs, Placement
from mainspring.jobstores.sqlalchemy.waiting.gates import GateVerbs
from mainspring.jobstores.sqlalchemy.waiting.judging import (
    LOCKED_COLUMNS,
    Judgement,
    LockedRun,
    locked_runs,
    to_lock,
)
from mainspring.jobstores.values import IDS_REMEMBERED_US

__all__ = [
    "CLAIMED", "COLUMNS", "FIRED", "FRESH", "INSERTED", "NEXT_ATTEMPT", "PLACED", "RUN_COLUMNS", "SUCCEEDED",
    "WRITTEN", "RunVerbs", "Terms", "are_ends", "are_plain", "are_unkeyed", "claimed_row", "delete_runs",
    "fired_row", "forget", "fresh_row", "inserted_row", "is_fresh", "is_plain_end", "is_plain_success",
    "placed_row", "run_row", "settle_others", "succeeded_row", "written_row",
]  # fmt: skip

_IDENTITY: Final = ("payload", "owner", "job_id", "created_at", "group_id")
_CHANGING: Final = (
    "state", "live", "queue", "lane", "status", "priority", "run_at", "finished_at", "keep", "token", "node",
    "lease_until", "attempt", "cancelling", "unique_key", "expires_at",
)  # fmt: skip
INSERTED: Final = ("id", *_CHANGING, *_IDENTITY, "claimed_at", "task", "label")
FRESH: Final = (
    "id", "payload", "state", "queue", "lane", "priority", "run_at", "keep", "created_at", "group_id", "task", "label",
)  # fmt: skip
"""The columns to insert for a run that was just enqueued: the others have fixed values. A fired run also has FIRED."""
FIRED: Final = ("owner", "job_id")
# Keep the reports of heartbeats where the new record has none.
WRITTEN: Final[tuple[Set, ...]] = tuple(
    ("live", "COALESCE({new}, {old})") if name == "live" else name for name in _CHANGING
)
SUCCEEDED: Final[tuple[Set, ...]] = (
    "state", "lane", "finished_at", "expires_at", ("status", "'succeeded'"), ("lease_until", "NULL"),
)  # fmt: skip
"""The columns that a plain success changes; the lane changes if the run needed another executor than was known."""
_FLOW: Final = ("followed", "refused", "waits", "gate", "gate_spec")
PLACED: Final = (*INSERTED, *_FLOW, "at_gate")
"""The columns of a run that comes after others or has a gate; for other runs, the last columns keep their defaults."""
COLUMNS: Final = (
    "id", "payload", "state", "queue", "status", "run_at", "created_at", "keep", "lane", "priority", "attempt", "token",
    "node", "lease_until", "claimed_at", "finished_at", "live", "owner", "job_id", "group_id", "unique_key",
    "cancelling", "waits", "followed", "refused", "gate", "gate_spec",
)  # fmt: skip
"""All columns that are read of a run, in the order of `RunRow`, which has `after` before `waits`."""
CLAIMED: Final = (
    "id", "payload", "state", "queue", "run_at", "created_at", "keep", "lane", "priority", "attempt", "finished_at",
    "live", "owner", "job_id", "group_id", "unique_key", "cancelling", "followed", "refused",
)  # fmt: skip
"""The columns that a claim reads of a run that stands at no gate: the claim itself knows the others."""


class Terms(NamedTuple):
    """The terms on which a claim leases runs."""

    node: str
    token: str
    until: int
    now: int


RUN_COLUMNS: Final = ", ".join(COLUMNS)
NEXT_ATTEMPT: Final = f"CASE WHEN attempt < {MOST_ATTEMPTS} THEN attempt + 1 ELSE attempt END"
fresh_row: Final[Callable[[RunRow], Row]] = attrgetter(
    "id", "call", "state", "queue", "lane", "priority", "run_at", "keep", "created_at", "group", "task", "label"
)
"""Returns the values of FRESH."""
fired_row: Final[Callable[[RunRow], Row]] = attrgetter(*FIRED)
_id: Final = attrgetter("id")
_unique: Final = attrgetter("unique")
_BROKEN: Final = Status.BROKEN.value
_KNOWN: Final = "SELECT id FROM {runs} WHERE id {in} UNION ALL SELECT id FROM {gone} WHERE id {in} AND expires_at > ?"
_HOLDERS: Final = "SELECT unique_key, id FROM {runs} WHERE unique_key {in} AND unique_key IS NOT NULL"
_COUNT: Final = (
    f"UPDATE {{totals}} SET n = CASE WHEN n BETWEEN 0 AND {NEVER} THEN n ELSE 0 END + ? WHERE status = ? AND slot = ?"
)


def run_row(row: Sequence[Any]) -> RunRow:
    """Build a run's row from the values of RUN_COLUMNS."""
    kept = list(row)
    kept[21:22] = [bool(row[21]), ()]  # `after` is in the state
    return RunRow(*kept)


def claimed_row(row: Sequence[Any], terms: Terms) -> RunRow:
    """Build the row of a claimed run from the values of CLAIMED; ignore any values after them."""
    node, token, until, now = terms
    (
        run_id, call, state, queue, run_at, created_at, keep, lane, priority, attempt, finished_at, live, owner, job_id,
        group, unique, cancelling, followed, refused, *_,
    ) = row  # fmt: skip
    return RunRow(
        run_id, call, state, queue, "running", run_at, created_at, keep, lane, priority, attempt, token, node, until,
        now, finished_at, live, owner, job_id, group, unique, bool(cancelling), (), 0, followed, refused,
    )  # fmt: skip


def written_row(run: RunRow, now: int) -> Row:
    """Return a run's id and the values of WRITTEN."""
    ended = run.status in FINAL_VALUES
    # Make `now` even, so that the sum is odd only if `keep` is, that is, if the run has an explicit retention: pruning
    # by count then sees in the index which runs to skip.
    expires_at = (NEVER if run.status == _BROKEN else (now & -2) + run.keep) if ended else None
    return (
        run.id, run.state, run.live, run.queue, run.lane, run.status, run.priority, run.run_at, run.finished_at,
        run.keep, run.token, run.node, run.lease_until, run.attempt, int(run.cancelling),
        None if ended else run.unique, expires_at,
    )  # fmt: skip


def succeeded_row(run: RunRow, now: int) -> Row:
    """Return a run's id and the values of SUCCEEDED."""
    return run.id, run.state, run.lane, run.finished_at, (now & -2) + run.keep  # even, as in `written_row`


def inserted_row(run: RunRow, now: int) -> Row:
    """Return the values of INSERTED."""
    return (
        *written_row(run, now), run.call, run.owner, run.job_id, run.created_at, run.group, run.claimed_at, run.task,
        run.label,
    )  # fmt: skip


def is_fresh(run: RunRow) -> bool:
    """Return True if a run is new and pending, comes after no other, and has neither a unique key nor a gate."""
    return (
        run.status == "pending" and not (run.attempt or run.after or run.cancelling or run.waits or run.followed)
        and run.unique is None and run.gate is None and run.live is None and run.node is None and run.token is None
        and run.lease_until is None and run.finished_at is None and run.refused is None
    )  # fmt: skip


def placed_row(run: RunRow, now: int) -> Row:
    """Return the values of PLACED."""
    return (*inserted_row(run, now), run.followed, run.refused, run.waits, run.gate, run.gate_spec, gate_of(run))


def are_plain(runs: Iterable[RunRow]) -> bool:
    """Return True if no run comes after another or has a gate."""
    return not any(run.after or run.gate is not None or run.status == "blocked" for run in runs)


def are_unkeyed(runs: Iterable[RunRow]) -> bool:
    """Return True if all runs are pending or running, and none has a unique key or comes after another."""
    return all(
        run.unique is None and not run.after and run.status != "blocked" and run.status not in FINAL_VALUES
        for run in runs
    )


def are_ends(outcomes: Sequence[SettleRow]) -> bool:
    """Return True if every outcome ends a run under the condition HELD, and no run occurs twice."""
    return all(each.condition is Condition.HELD and each.run.status in FINAL_VALUES for each in outcomes) and len(
        {each.run.id for each in outcomes}
    ) == len(outcomes)


def is_plain_end(outcome: SettleRow) -> bool:
    """Return True if, as far as its claim knows, a run has no follow-ups, no successors and no gate."""
    return not outcome.then and not outcome.run.followed and outcome.run.gate is None


def is_plain_success(outcome: SettleRow) -> bool:
    """Return True if a held run has succeeded and, as far as its claim knows, nothing else has to be written."""
    run = outcome.run
    return (
        outcome.condition is Condition.HELD and run.status == "succeeded" and run.live is None
        and not (outcome.then or run.followed or run.cancelling) and run.gate is None and run.lease_until is None
    )  # fmt: skip


def settle_others(
    outcomes: Sequence[SettleRow], written: Collection[str], settle: Callable[[Sequence[SettleRow]], Sequence[bool]]
) -> list[bool]:
    """Settle the outcomes that are not written yet; return for every outcome whether it is written now."""
    if len(written) == len(outcomes):
        return [True] * len(outcomes)
    answers = iter(settle([each for each in outcomes if each.run.id not in written]))
    return [each.run.id in written or next(answers) for each in outcomes]


class RunVerbs(GateVerbs):
    """The verbs that add and settle runs, in statements that every dialect has."""

    locked_columns: ClassVar[tuple[str, ...]] = LOCKED_COLUMNS
    """The columns that `settle` reads; on a server, the last one is the mark of processes that wait for an end."""

    def add_runs(self, runs: Sequence[RunRow]) -> dict[str, str | None]:
        """Insert the new runs; return an answer for each id.

        The answer is the id itself if the run was inserted, empty if the id is known, the id of the run that holds its
        unique key, or None if a run that it comes after is not in the store. A known id changes nothing; the id of a
        deleted run stays known for an hour. If another node inserts the same id or key between the check and the
        insert, the insert fails and the whole transaction starts again.
        """
        if not self.begun:
            self.begin()
        ids = self.many(sorted(set(map(_id, runs))))
        known = set(chain.from_iterable(self.all(_KNOWN, ids, ids, self.now)))
        keys = sorted(set(map(_unique, runs)) - {None})
        holders: dict[str, str] = dict(self.all(_HOLDERS, self.many(keys))) if keys else {}
        place = None if are_plain(runs) else self._placement(runs, known)
        new: dict[str, RunRow] = {}
        answers: dict[str, str | None] = {}
        for run in runs:
            if run.id in answers:
                continue
            if run.id in known:
                answers[run.id] = ""
                continue
            if run.unique is not None and run.unique in holders:
                answers[run.id] = holders[run.unique]
                continue
            stored = run if place is None else place.judge(run)
            answers[run.id] = None if stored is None else run.id
            if stored is not None:
                new[run.id] = stored
                self.stirred |= stored.status == "pending"
                if run.unique is not None:
                    holders[run.unique] = run.id
        rows = [new[run_id] for run_id in sorted(new)]
        if place is None:
            self.insert("runs", INSERTED, [inserted_row(run, self.now) for run in rows])
        else:
            self.insert("runs", PLACED, [placed_row(place.counted(run), self.now) for run in rows])
            self.add_edges(place.edges, {pred for pred, _, _ in place.edges} - new.keys())
            self.refused += place.refused
        return answers

    def _placement(self, runs: Sequence[RunRow], known: set[str]) -> Placement:
        """Lock the stored runs that new runs come after; return the judge of the new runs."""
        new = [run for run in runs if run.id not in known]
        outside = {each.id for run in new for each in run.after}.difference(map(_id, new))
        return Placement(self.predecessors(outside), self.now)

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
        """Write each outcome whose condition holds, with its follow-ups; release or refuse the runs that come after.

        Lock and read the runs, let a `Judgement` decide, and write the new records. Then deal with what follows from
        them, in this order: runs that are sent back, gates, successors, follow-ups, parked runs. Most calls need no
        statement for most of these. A dialect has quicker statements for the most frequent outcomes.
        """
        if not self.begun:
            self.begin()
        ids = self.many(sorted(to_lock(outcomes)))
        rows = self.table(self.locked_columns, "FROM {runs} WHERE id {in} ORDER BY id {lock}", ids)
        locked = locked_runs(rows, self.now)
        found = Judgement(locked, self._holders(outcomes, locked), self.now)
        for outcome in outcomes:
            found.judge(outcome)
        found.place_sent_back()
        written = [found.written[run_id] for run_id in sorted(found.written)]
        if written:
            self.update("runs", WRITTEN, [written_row(run, self.now) for run in written])
            self.count_ends(found.totals)
            self.stirred |= any(run.status == "pending" for run in written)
            if any(run.status in FINAL_VALUES for run in written):
                self.note_ends(rows[0][len(LOCKED_COLUMNS) :])
        if found.refused_by:
            self.update("runs", ("refused",), sorted(found.refused_by.items()))
        if found.sent_back:
            self._send_back(found)
        if rows_of_gates := found.gate_rows():
            self.update("runs", ("gate", "gate_spec", "at_gate"), rows_of_gates)
        if found.followed_ends:
            self.release(found.followed_ends)
        # Add these only after the release: the ends of this call have been counted for them already.
        self.add_edges(found.new_edges, {pred for pred, _, _ in found.new_edges})
        self.refused += found.refused_again
        if found.follow_ups:
            self.add_runs(found.follow_ups)
        self.make_room(found.freed, written)
        return found.answers

    def note_ends(self, awaited: Sequence[int | None]) -> None:
        """Note that runs have ended; `awaited`, if it was read, is the mark of processes that wait for an end."""
        self.ended = True
        if awaited:
            self.awaited |= any(until is not None and until > self.now for until in awaited)

    def make_room(self, freed: Mapping[str, int], runs: Iterable[RunRow]) -> None:
        """Unpark runs of the gates that runs have left; wake sleepers if the queue of one of `runs` has a limit.

        A run that has ended may leave room below that limit.
        """
        if freed:
            self.let_in(freed)
        limited = self.database.limited
        self.stirred |= bool(limited) and any(run.queue in limited for run in runs)

    def _send_back(self, found: Judgement) -> None:
        """Delete the old edges of the runs that are sent back, and write their new counts and refusals."""
        ids = sorted(found.sent_back)
        had_ended = [run_id for run_id in ids if found.sent_back[run_id]]
        self.forget_edges(ids, set(ids).difference(had_ended))
        back = [found.written[run_id] for run_id in ids]
        self.update("runs", ("waits", "refused"), [(run.id, run.waits, run.refused) for run in back])
        self.update("runs", ("followed",), [(run_id, 0) for run_id in had_ended])

    def _holders(self, outcomes: Sequence[SettleRow], locked: Mapping[str, LockedRun]) -> dict[str, str]:
        """Return which runs hold the unique keys that these outcomes want to take again."""
        wanted: set[str] = set()
        for each in outcomes:
            run, stored = each.run, locked.get(each.run.id)
            takes = run.unique is not None and run.status not in FINAL_VALUES
            if takes and stored is not None and stored.unique != run.unique:
                wanted.add(str(run.unique))
        return dict(self.all(_HOLDERS, self.many(sorted(wanted)))) if wanted else {}

    def count_ends(self, ended: Counter[str]) -> None:
        """Count runs that have reached a final status."""
        slot = self.database.slot
        for status in sorted(ended):
            if not self.run(_COUNT, ended[status], status, slot):
                self.insert("totals", ("status", "slot", "n"), [(status, slot, ended[status])])


# -- deleting ------------------------------------------------------------------------------------------------------


def delete_runs(tx: EdgeVerbs, run_ids: Sequence[str]) -> int:
    """Delete finished runs and remember their ids for an hour."""
    found = tx.all(
        "SELECT id FROM {runs} WHERE id {in} AND status NOT IN ('blocked', 'pending', 'running') ORDER BY id {lock}",
        tx.many(sorted(set(run_ids))),
    )
    forget(tx, [run_id for (run_id,) in found])
    return len(found)


def forget(tx: EdgeVerbs, ids: list[str]) -> None:
    """Delete locked runs and their edges, and remember their ids for an hour."""
    if ids:
        until, those = tx.now + IDS_REMEMBERED_US, tx.many(ids)
        tx.database.forgotten += len(ids)
        tx.run("DELETE FROM {gone} WHERE id {in}", those)
        tx.insert("gone", ("id", "expires_at"), [(run_id, until) for run_id in ids])
        tx.run("DELETE FROM {runs} WHERE id {in}", those)
        tx.forget_edges(ids)
