"""Keep history in SQL: the acts of people, and counters that outlive runs.

The id of a tally is its level, kind, time and name, so ids of a kind sort by time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from mainspring.core.insight.acts import MOST_ACTS
from mainspring.core.insight.metrics import (
    KINDS,
    LEVELS,
    MOST_NAMES,
    Tally,
    add_cells,
    oldest_kept,
    pack_cells,
    unpack_cells,
)
from mainspring.jobstores.records.acts import ActRow
from mainspring.jobstores.sqlalchemy.transaction import Tx

__all__ = ["add_acts", "add_tallies", "find_acts", "find_tallies"]

_HEAD_CHARS = 20
"""The length of an id without the name."""


def add_acts(tx: Tx, rows: Sequence[ActRow], oldest: str) -> None:
    """Insert acts; delete those up to the id `oldest`, and the oldest above MOST_ACTS."""
    tx.insert("acts", ("id", "about", "frame"), [(row.id, row.about, row.frame) for row in rows])
    excess = tx.one("SELECT id FROM {acts} ORDER BY id DESC LIMIT 1 OFFSET ?", MOST_ACTS)
    tx.run("DELETE FROM {acts} WHERE id <= ?", oldest if excess is None else max(oldest, excess[0]))


def find_acts(tx: Tx, about: str | None, after: str | None, limit: int) -> list[ActRow]:
    """Read acts, newest first."""
    where = "1 = 1"
    params: list[Any] = []
    if about is not None:
        where += " AND about = ?"
        params.append(about)
    if after is not None:
        where += " AND id < ?"
        params.append(after)
    rows = tx.all(f"SELECT id, about, frame FROM {{acts}} WHERE {where} ORDER BY id DESC LIMIT ?", *params, limit)
    # Skip altered rows; the sweep deletes them.
    return [
        ActRow(row[0], row[1], bytes(row[2])) for row in rows if isinstance(row[0], str) and isinstance(row[1], str)
    ]


# -- counters -------------------------------------------------------------------------------------------------------


def add_tallies(tx: Tx, tallies: Sequence[Tally]) -> None:
    """Add counts; add those of names above MOST_NAMES to the empty name; delete counters that are too old."""
    wanted: dict[str, dict[int, int]] = {}
    for tally in tallies:
        add_cells(wanted.setdefault(_head(tally.kind, tally.level, tally.at) + tally.name, {}), tally.cells)
    known = _known(tx, wanted)
    new_ids = sorted(each for each in wanted if each not in known)
    for head, some in groupby(new_ids, lambda each: each[:_HEAD_CHARS]):
        _limit_names(tx, head, [each for each in some if each != head], wanted)
    known |= _known(tx, [each for each in wanted if each not in known])  # the empty name, if it was added above
    changed = {each: add_cells(known.get(each, {}), cells) for each, cells in sorted(wanted.items())}
    new = [(each, pack_cells(cells)) for each, cells in changed.items() if each not in known]
    tx.update("tallies", ("cells",), [(each, pack_cells(cells)) for each, cells in changed.items() if each in known])
    if new:
        tx.insert("tallies", ("id", "cells"), new)
        _forget(tx)


def _known(tx: Tx, ids: Iterable[str]) -> dict[str, dict[int, int]]:
    """Read tallies, and lock them in the order of their ids, so that two nodes do not deadlock."""
    sought = sorted(ids)
    rows = tx.all("SELECT id, cells FROM {tallies} WHERE id {in} ORDER BY id {lock}", tx.many(sought)) if sought else []
    return {row[0]: unpack_cells(row[1]) for row in rows}


def _limit_names(tx: Tx, head: str, new: list[str], wanted: dict[str, dict[int, int]]) -> None:
    """Move the counts of new names that are too many in a stretch to the empty name."""
    [(number,)] = tx.all("SELECT count(*) FROM {tallies} WHERE id > ? AND id < ?", head, _after(head))
    for excess in new[max(0, MOST_NAMES - number) :]:
        add_cells(wanted.setdefault(head, {}), wanted.pop(excess))


def _forget(tx: Tx) -> None:
    now = tx.database.trusted_now(tx)  # a clock that is ahead deletes nothing
    for level in range(len(LEVELS)):
        oldest = oldest_kept(level, now)
        if oldest is not None:
            for kind in KINDS:
                first = _head(kind, level, 0)
                tx.run("DELETE FROM {tallies} WHERE id >= ? AND id < ?", first, _head(kind, level, oldest))


def find_tallies(tx: Tx, kind: str, name: str | None, level: int, since: int, until: int) -> list[Tally]:
    """Read the tallies of a kind, oldest first."""
    stretch = LEVELS[level].stretch
    first, last = since // stretch * stretch, -(-until // stretch) * stretch
    bounds = _head(kind, level, first), _head(kind, level, last)
    if name is None:
        rows = tx.all("SELECT id, cells FROM {tallies} WHERE id >= ? AND id < ? ORDER BY id", *bounds)
    else:
        ids = [_head(kind, level, at) + name for at in range(max(first, last - 2000 * stretch), last, stretch)]
        rows = tx.all("SELECT id, cells FROM {tallies} WHERE id {in} ORDER BY id", tx.many(ids))
    return [
        Tally(kind, row[0][_HEAD_CHARS:], level, int(row[0][2:_HEAD_CHARS]), unpack_cells(row[1]))
        for row in rows
        if isinstance(row[0], str)
    ]


def _head(kind: str, level: int, at: int) -> str:
    return f"{level}{KINDS.index(kind)}{max(0, at):018d}"


def _after(head: str) -> str:
    """Return the first id of the next stretch, whatever names this one has."""
    return f"{head[:2]}{int(head[2:]) + 1:018d}"
