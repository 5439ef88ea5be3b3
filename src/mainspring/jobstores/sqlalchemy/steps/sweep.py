"""Find records that somebody altered behind the store's back; correct derived values, set the other records aside.

Every column accepts only values of its type. But SQLite also accepts text that is not valid UTF-8, and every statement
that reads such a text fails. An altered value may also have the right type and be wrong: it may sort so that no
statement finds the record again. So the sweep searches for the wrong values themselves.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from mainspring.core.instants import SECOND
from mainspring.core.lanes import queue_of
from mainspring.core.run import MESSAGE_CHARS, Status
from mainspring.jobstores.records.rows import (
    ALTERED,
    FINAL_VALUES,
    JobRow,
    RunRow,
    job_damage,
    mended_row,
    run_damage,
    sound_instant,
)
from mainspring.jobstores.sqlalchemy.meta import take_versions
from mainspring.jobstores.sqlalchemy.schema import ColumnType, odd
from mainspring.jobstores.sqlalchemy.steps.runs import COLUMNS, PLACED, placed_row, run_row
from mainspring.jobstores.sqlalchemy.transaction import Row, Tx
from mainspring.jobstores.sqlalchemy.waiting.gates import GateVerbs

__all__ = ["sweep"]

SWEEP_PAGE_ROWS: Final = 500
"""One transaction sets aside at most this many altered records of a table, besides those that it is given."""
VALUE_CHARS_SHOWN: Final = 200
"""The reason quotes at most this many characters of an altered value."""
MOST_AHEAD_US: Final = 60 * SECOND
"""No job is hidden from other schedulers for longer than this, and no clock is assumed to be ahead by more."""

log = logging.getLogger("mainspring.jobstores.sqlalchemy")

_DROPPED: Final = ("limits", "gone", "queues", "nodes", "totals", "acts")
"""Tables whose altered rows are deleted."""

Break = Callable[[RunRow, str, int], RunRow]
"""A function that returns a run as broken, given the reason and the time."""


class _AlteredRow(NamedTuple):
    """An altered row: its key, its values with the wrong ones replaced, and what is wrong."""

    key: Any
    values: dict[str, Any]
    damage: str


def sweep(tx: GateVerbs, break_: Break, run_ids: Sequence[str], job_ids: Sequence[str]) -> int:
    """Correct altered records or set them aside, among them those with these ids; return how many."""
    cut_off = _drop_edges(tx) if tx.database.kind == "sqlite" else {}
    number = len(cut_off) + _set_runs_aside(tx, break_, run_ids, cut_off) + _set_jobs_aside(tx, job_ids)
    if tx.database.kind == "sqlite":
        number += _mend_broken(tx) + sum(_drop(tx, table) for table in _DROPPED)
    # `due_at` can be derived from `at`.
    number += tx.run(
        "UPDATE {jobs} SET due_at = at WHERE (at IS NULL) <> (due_at IS NULL) OR (due_at <> at AND due_at > ?)",
        tx.now + MOST_AHEAD_US,
    )
    # A run that should start at once must not wait because a clock was ahead.
    number += tx.run(
        "UPDATE {runs} SET run_at = ?"
        " WHERE created_at > ? AND run_at <= created_at AND run_at > ? AND status = 'pending'",
        tx.now,
        tx.now + MOST_AHEAD_US,
        tx.now,
    )
    tx.rescheduled |= number > 0
    return number


def _set_runs_aside(tx: GateVerbs, break_: Break, ids: Sequence[str], cut_off: Mapping[str, str]) -> int:
    """Set altered runs aside, and the blocked runs in `cut_off`; release or refuse their successors."""
    now, number = tx.now, 0
    ended = {}
    freed: Counter[str] = Counter()
    for key, values, note in _find(tx, "runs", [*ids, *cut_off]):
        values["at_gate"] = _place(values)
        if queue_of(values["lane"]) != values["queue"]:
            values["lane"] = values["queue"]
        run = run_row([values[name] for name in COLUMNS])
        damage = note or run_damage(run) or (cut_off.get(run.id) if run.status == Status.BLOCKED.value else None)
        number += 1
        if damage is None:
            _overwrite(tx, "runs", key, values)
            continue
        log.error("run %r is set aside: %s", run.id, damage)
        if run.status not in FINAL_VALUES:
            ended[run.id] = Status.BROKEN.value
            freed[run.gate or ""] += 1
        written = placed_row(break_(mended_row(run, now), f"bad_data: {damage}", now), now)
        _overwrite(tx, "runs", key, {**dict(zip(PLACED, written, strict=True)), "at_gate": None})
    if ended:
        tx.release(ended)
    del freed[""]
    if freed:
        tx.let_in(freed)
    return number


def _place(values: dict[str, Any]) -> str | None:
    """Return the gate that a run stands at, by its other values."""
    free = values["refused"] is None and values["waits"] == 0 and values["status"] not in FINAL_VALUES
    return values["gate"] if free else None


def _drop_edges(tx: Tx) -> dict[str, str]:
    """Delete altered edges; return the reason for each run that might now wait for ever."""
    cut_off = {}
    for key, values, damage in _find(tx, "edges", ()):
        log.error(
            "an edge from run %r to run %r was altered and is deleted: %s", values["pred"], values["succ"], damage
        )
        tx.run("DELETE FROM {edges} WHERE rowid = ?", key)
        cut_off[values["succ"]] = f"an edge to it {ALTERED}: {damage}"
    return cut_off


def _set_jobs_aside(tx: Tx, ids: Sequence[str]) -> int:
    number = 0
    for key, values, note in _find(tx, "jobs", ids):
        job_id = values["id"]
        damage = note or job_damage(JobRow(job_id, values["at"], values["nominal"], values["frame"]))
        number += 1
        if damage is None:
            _overwrite(tx, "jobs", key, values)
            continue
        log.error("job %r is set aside: %s", job_id, damage)
        row = {
            "incarnation": take_versions(tx, 1),
            "id": job_id,
            "reason": f"bad_data: {damage}",
            "broken_at": tx.now,
            "at": sound_instant(values["at"], None),
            "nominal": sound_instant(values["nominal"], None),
            "frame": values["frame"],
            "miss": values["miss"],
        }
        tx.insert("broken", tuple(row), [tuple(row.values())])
        tx.run(f"DELETE FROM {{jobs}} WHERE {_key(tx)} = ?", key)
    return number


def _mend_broken(tx: Tx) -> int:
    found = _find(tx, "broken", ())
    for key, values, damage in found:
        log.error("what is kept of job %r, which was set aside, was altered: %s", values["id"], damage)
        values["incarnation"] = take_versions(tx, 1)
        values["reason"] = f"{values['reason']} ({damage})"
        _overwrite(tx, "broken", key, values)
    return len(found)


def _drop(tx: Tx, table: str) -> int:
    """Delete altered rows of a table whose contents are also elsewhere or are written again soon."""
    found = _find(tx, table, ())
    for key, _, damage in found:
        log.error("a row of the table %s was altered and is deleted: %s", tx.database.names[table], damage)
        tx.run(f"DELETE FROM {{{table}}} WHERE {_key(tx)} = ?", key)
    return len(found)


# -- finding ---------------------------------------------------------------------------------------------------------


def _key(tx: Tx) -> str:
    """Return the column that finds a row even if its id was altered."""
    return "rowid" if tx.database.kind == "sqlite" else "id"


def _find(tx: Tx, table: str, ids: Sequence[str]) -> list[_AlteredRow]:
    columns = tx.database.columns[table]
    names = ", ".join(column.name for column in columns)
    select = f"SELECT {_key(tx)}, {names} FROM {{{table}}} WHERE"
    rows: dict[Any, Row] = {}
    condition = odd(table)
    if condition:
        rows |= {row[0]: row[1:] for row in tx.raw(f"{select} {condition} LIMIT {SWEEP_PAGE_ROWS} {{lock}}")}
    if ids:
        rows |= {row[0]: row[1:] for row in tx.raw(f"{select} id {{in}} {{lock}}", tx.many(sorted(ids)))}
    rows |= {key: row for key in tx.undecodable(table, columns) for _, *row in tx.raw(f"{select} rowid = ?", key)}
    return [_AlteredRow(key, *_sound(columns, row, key)) for key, row in rows.items()]


def _sound(columns: Sequence[ColumnType], row: Row, key: Any) -> tuple[dict[str, Any], str]:
    values, notes = {}, []
    for column, value in zip(columns, row, strict=True):
        if column.kind != "text" or not isinstance(value, bytes):
            values[column.name] = bytes(value) if column.kind == "bytes" and value is not None else value
            continue
        notes.append(f"its {column.name} {ALTERED}: {value!r:.{VALUE_CHARS_SHOWN}}")
        values[column.name] = _substitute(column, value, key)
    return values, "; ".join(notes)[:MESSAGE_CHARS]


def _substitute(column: ColumnType, value: bytes, key: Any) -> str | None:
    """Return a text that keeps as much as possible of one that is not valid."""
    text = value.decode("utf-8", "backslashreplace")
    if column.key:
        return f"altered {key}: {text:.100}"
    return None if column.null else text[:100]


def _overwrite(tx: Tx, table: str, key: Any, values: dict[str, Any]) -> None:
    """Write a row with values of the right types."""
    sets = ", ".join(f"{name} = ?" for name in values)
    tx.run(f"UPDATE {{{table}}} SET {sets} WHERE {_key(tx)} = ?", *values.values(), key)
