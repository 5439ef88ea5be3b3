"""Write, find, fire and set aside jobs in SQL, with the statements beside each step."""

from __future__ import annotations

from collections.abc import Container, Sequence
from operator import attrgetter
from typing import Final

from mainspring.core.instants import SECOND
from mainspring.core.run import is_local
from mainspring.errors import ConflictingIdError, JobLookupError, VersionConflict
from mainspring.jobstores.base import Answers, BrokenJob
from mainspring.jobstores.records.rows import FireRow, JobRow, RunRow, unclaimed_row
from mainspring.jobstores.sqlalchemy.meta import take_versions
from mainspring.jobstores.sqlalchemy.steps.runs import RunVerbs, are_unkeyed
from mainspring.jobstores.sqlalchemy.transaction import Row, Tx

__all__ = [
    "COLUMNS", "MOVED", "JobVerbs", "are_simple", "broken_jobs", "get_jobs", "next_at", "next_due", "remove_jobs",
    "restore", "set_aside", "update_job",
]  # fmt: skip

COLUMNS: Final = "id, at, nominal, frame, version, incarnation, 0, miss"  # in the order of JobRow
MOVED: Final = ("at", "nominal", "due_at", "version", "miss")
_DUE: Final = f"SELECT {COLUMNS}, due_at FROM {{jobs}} WHERE due_at <= ? ORDER BY due_at LIMIT ? {{skip}}"
_NEXT: Final = "SELECT due_at FROM {jobs} WHERE due_at > ? ORDER BY due_at LIMIT 1"
_UNFINISHED: Final = (
    "SELECT owner, count(*) FROM {runs} WHERE owner {in} AND owner IS NOT NULL AND expires_at IS NULL GROUP BY owner"
)
_LIMITED: Final = "SELECT name FROM {queues} WHERE name {in}"
_AT: Final = attrgetter("at")
_ADDED: Final = ("id", "at", "nominal", "due_at", "frame", "version", "incarnation")


class JobVerbs(RunVerbs):
    """The verbs that add, find and fire jobs, in statements that every dialect has."""

    def add_jobs(self, rows: Sequence[JobRow], replace: bool, versions: Sequence[int]) -> list[tuple[int, int]]:
        """Write jobs, all or none; return the version and incarnation of each."""
        if len(rows) == 1 and not replace and not self.begun and self.may_fail:
            # One statement is enough. If the id is taken, it collides and is repeated in a transaction.
            [row], [version] = rows, versions
            self.insert("jobs", _ADDED, [(row.id, row.at, row.nominal, row.at, row.frame, version, version)])
            self.rescheduled |= row.at is not None
            return [(version, version)]
        if not self.begun:
            self.begin()
        ids = sorted({row.id for row in rows})
        locked = self.all("SELECT id, incarnation FROM {jobs} WHERE id {in} ORDER BY id {lock}", self.many(ids))
        stored: dict[str, int] = dict(locked)
        if not replace and (stored or len(ids) < len(rows)):
            raise ConflictingIdError(_first_taken(rows, stored))
        answers = []
        new: dict[str, Row] = {}
        changed: dict[str, Row] = {}
        for row, version in zip(rows, versions, strict=True):
            if row.id in stored:
                changed[row.id] = (row.id, row.at, row.nominal, row.at, row.frame, version)
                answers.append((version, stored[row.id]))
            else:
                incarnation = new[row.id][6] if row.id in new else version
                new[row.id] = (row.id, row.at, row.nominal, row.at, row.frame, version, incarnation)
                answers.append((version, incarnation))
            self.rescheduled |= row.at is not None
        self.insert("jobs", _ADDED, [new[job_id] for job_id in sorted(new)])
        self.update("jobs", _ADDED[1:-1], [changed[job_id] for job_id in sorted(changed)])
        return answers

    def due(self, limit: int, hold: float) -> tuple[int, list[JobRow], int | None]:
        """Return now, the due jobs, and when another job may be due; hide the returned jobs for `hold` seconds."""
        if not self.begun:
            self.begin()
        now = self.now
        found = self.all(_DUE, now, limit + 1)
        # The query reads one job more than requested: that one says when another job may be due.
        next_at = found[limit][-1] if len(found) > limit else instant(self.one(_NEXT, now))
        page = self.really_due([JobRow(*row[:-1]) for row in found[:limit]], now)
        if page and hold > 0:
            until = now + int(hold * SECOND)
            self.run("UPDATE {jobs} SET due_at = ? WHERE id {in}", until, self.many([row.id for row in page]))
        return now, page, next_at

    def really_due(self, page: list[JobRow], now: int) -> list[JobRow]:
        """Return the jobs of a page that are really due, sorted, with the number of unfinished runs of each.

        If a job only looks due because its `due_at` was altered, correct it and leave it out.
        """
        early = [row.id for row in page if row.at is None or row.at > now]
        if early:
            self.run("UPDATE {jobs} SET due_at = at WHERE id {in}", self.many(sorted(early)))
            page = [row for row in page if row.id not in early]
        if page:
            # Count in a later statement than the one that read the jobs: it sees the runs of every fire that led to the
            # versions that were read.
            owners = [f"{row.id}@{row.incarnation}" for row in page]
            counts: dict[str, int] = dict(self.all(_UNFINISHED, self.many(owners)))
            for row, owner in zip(page, owners, strict=True):
                row.unfinished = counts.get(owner, 0)
            page.sort(key=_AT)
        return page

    def fire(
        self, firings: Sequence[FireRow], lease: float, versions: Sequence[int]
    ) -> Answers[tuple[str, ...] | None]:
        """Write each firing whose job is unchanged, and due unless `unscheduled`; return its runs, None if it lost."""
        if not self.begun:
            self.begin()
        now, until = self.now, self.now + int(lease * SECOND)
        ids = sorted({step.job_id for step in firings})
        locked = self.all("SELECT id, version, at FROM {jobs} WHERE id {in} ORDER BY id {lock}", self.many(ids))
        stored = {job_id: (version, at) for job_id, version, at in locked}
        taken: list[FireRow | None] = []
        written: dict[str, Row] = {}
        finished: list[str] = []
        replaced: list[Row] = []
        runs: list[RunRow] = []
        missed: list[RunRow] = []
        for step, version in zip(firings, versions, strict=True):
            present, at = stored.get(step.job_id, (None, None))
            if present != step.version or not (step.unscheduled or (at is not None and at <= now)):
                taken.append(None)
                continue
            taken.append(step)
            if step.next_at is None and not step.unscheduled:
                del stored[step.job_id]
                written.pop(step.job_id, None)
                finished.append(step.job_id)
            else:
                stored[step.job_id] = version, step.next_at
                at = step.next_at
                written[step.job_id] = (step.job_id, at, step.next_nominal, at, version, step.miss)
            if step.frame is not None:
                replaced.append((step.job_id, step.frame))
            runs += step.runs
            missed += step.missed
        self.update("jobs", MOVED, [*written.values()])  # the jobs are locked, so their order does not matter
        if replaced:
            self.update("jobs", ("frame",), replaced)
            self.rescheduled = True
        if finished:
            self.run("DELETE FROM {jobs} WHERE id {in}", self.many(sorted(finished)))
        runs, waiting = self._lease_fired(runs, until)
        inserted = self.add_runs(runs) if runs else {}
        if missed:
            self.record_missed(missed)
        answers: Answers[tuple[str, ...] | None] = Answers(waiting=waiting)
        for each in taken:
            mine = () if each is None else [run.id for run in each.runs if inserted.pop(run.id, None) == run.id]
            answers.append(None if each is None else tuple(mine))
        return answers

    def _lease_fired(self, runs: list[RunRow], until: int) -> tuple[list[RunRow], list[str]]:
        """Lease the fired runs that are claimed, except in limited queues; return all runs, and the ids left waiting.

        This changes no row but its lease: if the transaction fails, it starts again with the same rows.
        """
        claimed = [run for run in runs if run.status == "running"]
        if not claimed:
            return runs, []
        for run in claimed:
            run.lease_until = until
        queues = sorted({run.queue for run in claimed if not is_local(run.queue)})
        limited = {name for (name,) in self.all(_LIMITED, self.many(queues))} if queues else ()
        waiting = [run.id for run in claimed if run.queue in limited]
        return [unclaimed_row(run) if run.id in waiting else run for run in runs] if waiting else runs, waiting


def _first_taken(rows: Sequence[JobRow], stored: Container[str]) -> str:
    seen: set[str] = set()
    for row in rows:
        if row.id in stored or row.id in seen:
            return row.id
        seen.add(row.id)
    raise AssertionError("no id is taken")


def instant(row: Row | None) -> int | None:
    """Return the time that is a row's only value; raise TypeError if it was altered."""
    if row is None or row[0] is None:
        return None
    if not isinstance(row[0], int):
        raise TypeError(f"{row[0]!r:.100} is not a time")
    return row[0]


def are_simple(firings: Sequence[FireRow]) -> bool:
    """Return True if all firings are scheduled and have no missed records, no run is keyed, and none occurs twice."""
    runs = [run for step in firings for run in step.runs]
    return (
        not any(step.missed or step.unscheduled for step in firings)
        and are_unkeyed(runs)
        and len({step.job_id for step in firings}) == len(firings)
        and len({run.id for run in runs}) == len(runs)
    )


def update_job(tx: Tx, row: JobRow, version: int) -> None:
    """Replace a job if it still has the version of the row; otherwise raise JobLookupError or VersionConflict."""
    changed = tx.run(
        "UPDATE {jobs} SET at = ?, nominal = ?, due_at = ?, frame = ?, version = ? WHERE id = ? AND version = ?",
        row.at,
        row.nominal,
        row.at,
        row.frame,
        version,
        row.id,
        row.version,
    )
    if not changed:
        if tx.one("SELECT 1 FROM {jobs} WHERE id = ?", row.id) is None:
            raise JobLookupError(row.id)
        raise VersionConflict(row.id)
    tx.rescheduled |= row.at is not None


def get_jobs(tx: Tx, job_ids: Sequence[str] | None) -> list[JobRow]:
    """Read these jobs, or all, sorted by next run time with the paused ones last."""
    rows: list[Row] = []
    if job_ids is None:
        rows = tx.all(f"SELECT {COLUMNS} FROM {{jobs}}")
    elif job_ids:  # MariaDB has no empty list
        rows = tx.all(f"SELECT {COLUMNS} FROM {{jobs}} WHERE id {{in}}", tx.many(sorted(set(job_ids))))
    return [JobRow(*row) for row in sorted(rows, key=lambda row: (row[1] is None, row[1] or 0, row[0]))]


def remove_jobs(tx: Tx, job_ids: Sequence[str] | None, table: str) -> int:
    """Remove these jobs, or all, from `jobs`, which holds those that can fire, or from `broken`; return how many."""
    if job_ids is None:
        return tx.run(f"DELETE FROM {{{table}}}")
    return tx.run(f"DELETE FROM {{{table}}} WHERE id {{in}}", tx.many(sorted(set(job_ids)))) if job_ids else 0


def next_at(tx: Tx) -> int | None:
    """Return the earliest run time of all jobs, hidden or not."""
    return instant(tx.one("SELECT min(at) FROM {jobs}"))


def next_due(tx: Tx) -> int | None:
    """Return the earliest time at which `due` may return a job."""
    return instant(tx.one("SELECT due_at FROM {jobs} WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1"))


# -- set aside -----------------------------------------------------------------------------------------------------


def set_aside(tx: Tx, job_id: str, version: int, reason: str) -> bool:
    """Set aside a job that cannot be restored; return False if it is gone or has another version."""
    row = tx.one(f"SELECT {COLUMNS} FROM {{jobs}} WHERE id = ? AND version = ? {{lock}}", job_id, version)
    if row is None:
        return False
    job = JobRow(*row)
    number = job.incarnation
    if tx.one("SELECT 1 FROM {broken} WHERE incarnation = ?", number) is not None:  # one of the two was altered
        number = take_versions(tx, 1)
    tx.insert(
        "broken",
        ("incarnation", "id", "reason", "broken_at", "at", "nominal", "frame", "miss"),
        [(number, job.id, reason, tx.now, job.at, job.nominal, job.frame, job.miss)],
    )
    tx.run("DELETE FROM {jobs} WHERE id = ?", job_id)
    return True


def broken_jobs(tx: Tx) -> list[BrokenJob]:
    """Read the jobs that were set aside."""
    rows = tx.all("SELECT id, reason, frame, broken_at FROM {broken} ORDER BY broken_at, incarnation")
    return [BrokenJob(id=id_, reason=reason, payload=frame, at=at) for id_, reason, frame, at in rows]


def restore(tx: Tx, job_id: str, version: int) -> bool:
    """Put back the last job that was set aside under this id; return False if there is none."""
    row = tx.one(
        "SELECT incarnation, at, nominal, frame, miss FROM {broken} WHERE id = ?"
        " ORDER BY broken_at DESC, incarnation DESC LIMIT 1 {lock}",
        job_id,
    )
    if row is None:
        return False
    if tx.one("SELECT 1 FROM {jobs} WHERE id = ?", job_id) is not None:
        raise ConflictingIdError(job_id)
    incarnation, at, nominal, frame, miss = row
    tx.run("DELETE FROM {broken} WHERE incarnation = ?", incarnation)
    tx.insert(
        "jobs",
        ("id", "at", "nominal", "due_at", "frame", "version", "incarnation", "miss"),
        [(job_id, at, nominal, at, frame, version, incarnation, miss)],
    )
    tx.rescheduled = True
    return True
