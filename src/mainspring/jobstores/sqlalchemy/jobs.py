"""Jobs in SQL: each function is one step inside a transaction, with its statements beside it."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any

from mainspring.core.instants import SECOND
from mainspring.errors import ConflictingIdError, JobLookupError, VersionConflict
from mainspring.jobstores.base import BrokenJob
from mainspring.jobstores.records.rows import FireRow, JobRow, RunRow
from mainspring.jobstores.sqlalchemy.database import FusedTx, Tx, instant, take_block
from mainspring.jobstores.sqlalchemy.runs import INSERTED, insert_runs, inserted_row, record_missed, unkeyed

__all__ = [
    "add_jobs",
    "all_jobs",
    "broken_jobs",
    "discard",
    "due_jobs",
    "fire",
    "get_job",
    "insert_job",
    "next_at",
    "next_due",
    "remove_all",
    "remove_job",
    "restore",
    "set_aside",
    "simple",
    "update_job",
]

_COLUMNS = "id, at, nominal, frame, version, incarnation, 0, miss"  # in the order of JobRow
_NEAR = 100  # likely names are worth looking for only among a readable number of jobs


_ADDED = ("id", "at", "nominal", "due_at", "frame", "version", "incarnation")


def insert_job(tx: Tx, row: JobRow, version: int) -> list[tuple[int, int]]:
    """Write a job whose id is new; another of that id makes the statement collide."""
    tx.insert("jobs", _ADDED, [(row.id, row.at, row.nominal, row.at, row.frame, version, version)])
    tx.stirred |= row.at is not None
    return [(version, version)]


def add_jobs(tx: Tx, rows: Sequence[JobRow], replace: bool, versions: Sequence[int]) -> list[tuple[int, int]]:
    """Write jobs, all or none; return the version and incarnation of each."""
    ids = sorted({row.id for row in rows})
    stored: dict[str, int] = dict(tx.all("SELECT id, incarnation FROM {jobs} WHERE id {in} ORDER BY id {lock}", ids))
    if not replace and (stored or len(ids) < len(rows)):
        raise ConflictingIdError(_first_taken(rows, stored))
    answers = []
    new: dict[str, tuple[Any, ...]] = {}
    changed: dict[str, tuple[Any, ...]] = {}
    for row, version in zip(rows, versions, strict=True):
        if row.id in stored:
            changed[row.id] = (row.id, row.at, row.nominal, row.at, row.frame, version)
            answers.append((version, stored[row.id]))
        else:
            incarnation = new[row.id][6] if row.id in new else version
            new[row.id] = (row.id, row.at, row.nominal, row.at, row.frame, version, incarnation)
            answers.append((version, incarnation))
        tx.stirred |= row.at is not None
    tx.insert("jobs", _ADDED, [new[job_id] for job_id in sorted(new)])
    tx.update("jobs", _ADDED[1:-1], [changed[job_id] for job_id in sorted(changed)])
    return answers


def _first_taken(rows: Sequence[JobRow], stored: Container[str]) -> str:
    seen: set[str] = set()
    for row in rows:
        if row.id in stored or row.id in seen:
            return row.id
        seen.add(row.id)
    raise AssertionError("no id is taken")


def update_job(tx: Tx, row: JobRow, version: int) -> None:
    """Replace a job if its version is the row's."""
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
            raise _unknown(tx, row.id)
        raise VersionConflict(row.id)
    tx.stirred |= row.at is not None


def get_job(tx: Tx, job_id: str) -> JobRow | None:
    """Read a job."""
    row = tx.one(f"SELECT {_COLUMNS} FROM {{jobs}} WHERE id = ?", job_id)
    return None if row is None else JobRow(*row)


def all_jobs(tx: Tx) -> list[JobRow]:
    """Read all jobs by next run time, paused ones last."""
    rows = tx.all(f"SELECT {_COLUMNS} FROM {{jobs}}")
    return [JobRow(*row) for row in sorted(rows, key=lambda row: (row[1] is None, row[1] or 0, row[0]))]


def remove_job(tx: Tx, job_id: str) -> None:
    """Remove a job."""
    if not tx.run("DELETE FROM {jobs} WHERE id = ?", job_id):
        raise _unknown(tx, job_id)


def remove_all(tx: Tx) -> None:
    """Remove all jobs."""
    tx.run("DELETE FROM {jobs}")


def next_at(tx: Tx) -> int | None:
    """Return the earliest run time of all jobs, hidden or not."""
    return instant(tx.one("SELECT min(at) FROM {jobs}"))


def next_due(tx: Tx) -> int | None:
    """Return the earliest time at which `due` has something to hand out."""
    return instant(tx.one("SELECT due_at FROM {jobs} WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1"))


def due_jobs(tx: Tx, limit: int, hold: float) -> tuple[int, list[JobRow], int | None]:
    """Hand out due jobs and hide them."""
    if isinstance(tx, FusedTx) and hold > 0:
        now, next_at, rows = tx.hide(_COLUMNS, limit, hold)
        page = _really_due(tx, [JobRow(*row) for row in rows], now)
        _count_unfinished(tx, page)
        page.sort(key=_at)
        return now, page, next_at
    now = tx.now
    # One more than asked for tells when the next of the others can be had.
    found = tx.all(
        f"SELECT {_COLUMNS}, due_at FROM {{jobs}} WHERE due_at <= ? ORDER BY due_at LIMIT ? {{skip}}", now, limit + 1
    )
    if len(found) > limit:
        next_at = found[limit][-1]
    else:
        next_at = instant(tx.one("SELECT due_at FROM {jobs} WHERE due_at > ? ORDER BY due_at LIMIT 1", now))
    page = _really_due(tx, [JobRow(*row[:-1]) for row in found[:limit]], now)
    _count_unfinished(tx, page)
    if page and hold > 0:
        tx.run("UPDATE {jobs} SET due_at = ? WHERE id {in}", now + int(hold * SECOND), [row.id for row in page])
    page.sort(key=_at)
    return now, page, next_at


def _at(row: JobRow) -> int:
    return 0 if row.at is None else row.at


def _really_due(tx: Tx, page: list[JobRow], now: int) -> list[JobRow]:
    """Leave out jobs that are handed out only because somebody altered when they are, and put that right."""
    early = [row.id for row in page if row.at is None or row.at > now]
    if not early:
        return page
    tx.run("UPDATE {jobs} SET due_at = at WHERE id {in}", sorted(early))
    return [row for row in page if row.at is not None and row.at <= now]


def _count_unfinished(tx: Tx, page: Sequence[JobRow]) -> None:
    """Count the unfinished runs of jobs that were read.

    In a later statement, so that it sees the runs of every fire before the version that was read.
    """
    if not page:
        return
    owners = [f"{row.id}@{row.incarnation}" for row in page]
    counts: dict[str, int] = dict(
        tx.all(
            "SELECT owner, count(*) FROM {runs} WHERE owner {in} AND owner IS NOT NULL AND expires_at IS NULL"
            " GROUP BY owner",
            owners,
        )
    )
    for row, owner in zip(page, owners, strict=True):
        row.unfinished = counts.get(owner, 0)


_MOVED = ("at", "nominal", "due_at", "version", "miss")


def simple(firings: Sequence[FireRow]) -> bool:
    """Tell whether each job is due and comes once, as do runs, none missed or keyed: what `FusedTx.advance` writes."""
    runs = [run for step in firings for run in step.runs]
    return (
        not any(step.missed or step.besides for step in firings)
        and unkeyed(runs)
        and len({step.job_id for step in firings}) == len(firings)
        and len({run.id for run in runs}) == len(runs)
    )


def _fire_at_once(
    tx: FusedTx, firings: Sequence[FireRow], lease: float, versions: Sequence[int]
) -> list[tuple[str, ...] | None]:
    moved, ended, runs = [], [], []
    for step, version in zip(firings, versions, strict=True):
        if step.next_at is None:
            ended.append((step.job_id, step.version))
        else:
            at = step.next_at
            moved.append((step.job_id, at, step.next_nominal, at, version, step.miss, step.version))
        for run in step.runs:
            run.lease_until = int(lease * SECOND) if run.status == "running" else None
            runs.append((*inserted_row(run, 0), step.job_id))
    found = tx.advance((*_MOVED, "was"), sorted(moved), sorted(ended), (*INSERTED, "fired_by"), sorted(runs))
    tx.stirred |= any(run.status == "pending" for step in firings for run in step.runs)
    return [
        tuple(run.id for run in step.runs if f"fire:{run.id}" in found) if f"jobs:{step.job_id}" in found else None
        for step in firings
    ]


def fire(tx: Tx, firings: Sequence[FireRow], lease: float, versions: Sequence[int]) -> list[tuple[str, ...] | None]:
    """Take each step whose job is unchanged and due."""
    if isinstance(tx, FusedTx) and simple(firings):
        return _fire_at_once(tx, firings, lease, versions)
    now = tx.now
    ids = sorted({step.job_id for step in firings})
    stored = {
        job_id: (version, at)
        for job_id, version, at in tx.all("SELECT id, version, at FROM {jobs} WHERE id {in} ORDER BY id {lock}", ids)
    }
    taken: list[FireRow] = []
    won = []
    written: dict[str, tuple[Any, ...]] = {}
    for step, version in zip(firings, versions, strict=True):
        present, at = stored.get(step.job_id, (None, None))
        won.append(present == step.version and (step.besides or (at is not None and at <= now)))
        if won[-1]:
            taken.append(step)
            if step.next_at is None and not step.besides:
                del stored[step.job_id]
            else:
                stored[step.job_id] = version, step.next_at
                written[step.job_id] = (
                    step.job_id, step.next_at, step.next_nominal, step.next_at, version, step.miss
                )  # fmt: skip
    finished = sorted({step.job_id for step in taken} - stored.keys())
    tx.update(
        "jobs",
        _MOVED,
        [written[job_id] for job_id in ids if job_id in written and job_id in stored],
    )
    replaced = [(step.job_id, step.frame) for step in taken if step.frame is not None]
    if replaced:
        tx.update("jobs", ("frame",), replaced)
        tx.stirred = True
    if finished:
        tx.run("DELETE FROM {jobs} WHERE id {in}", finished)
    inserted = insert_runs(tx, list(_fired(taken, now + int(lease * SECOND))))
    record_missed(tx, [run for step in taken for run in step.missed])
    answers: Iterator[tuple[str, ...]] = iter(
        [tuple(run.id for run in step.runs if inserted.pop(run.id, None) == run.id) for step in taken]
    )
    return [next(answers) if each else None for each in won]


def _fired(steps: Sequence[FireRow], until: int) -> Iterator[RunRow]:
    for step in steps:
        for run in step.runs:
            if run.status == "running":
                run.lease_until = until
            yield run


# -- set aside -----------------------------------------------------------------------------------------------------


def set_aside(tx: Tx, job_id: str, version: int, reason: str) -> bool:
    """Keep a job that cannot be restored out of the way of the others."""
    row = tx.one(f"SELECT {_COLUMNS} FROM {{jobs}} WHERE id = ? AND version = ? {{lock}}", job_id, version)
    if row is None:
        return False
    job = JobRow(*row)
    number = job.incarnation
    if tx.one("SELECT 1 FROM {broken} WHERE incarnation = ?", number) is not None:  # somebody altered one of the two
        number = take_block(tx, 1)
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
    """Put a job that was set aside back as it was."""
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
    tx.stirred = True
    return True


def discard(tx: Tx, job_id: str) -> int:
    """Delete the records of a job that were set aside."""
    return tx.run("DELETE FROM {broken} WHERE id = ?", job_id)


def _unknown(tx: Tx, job_id: str) -> JobLookupError:
    known = [name for (name,) in tx.all(f"SELECT id FROM {{jobs}} LIMIT {_NEAR + 1}")]
    return JobLookupError(job_id, tuple(known) if len(known) <= _NEAR else ())
