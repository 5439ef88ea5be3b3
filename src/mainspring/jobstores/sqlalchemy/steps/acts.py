"""Keep a history of what people did, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mainspring.core.insight.acts import MOST_ACTS
from mainspring.jobstores.records.acts import ActRow
from mainspring.jobstores.sqlalchemy.transaction import Tx

__all__ = ["add_acts", "find_acts"]


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
