"""The numbers that a store keeps about itself: its schema, the last version given out, the last trusted time."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from typing import Final

from mainspring.errors import StoreUnavailable
from mainspring.jobstores.sqlalchemy.transaction import Row, Tx

__all__ = ["SQL_SCHEMA", "SchemaMismatch", "altered", "first_rows", "mend", "number", "other_schema", "take_versions"]

log = logging.getLogger("mainspring.jobstores.sqlalchemy")

SQL_SCHEMA: Final = 6
"""The schema of the tables. Raise it when you change the tables: nodes refuse tables of another schema."""
VERSION_MARGIN: Final = 1_000_000
"""Skip this many versions when the counter is restored: processes may have reserved some and not used them yet."""
MOST_VERSIONS: Final = 2**61
"""The counter of versions does not advance beyond this: only an alteration can bring it there."""
_SCHEMA_ROWS: Final = ("schema", "oldest_reader")
"""Two rows with the same value, so that one altered row does not stop all nodes."""
_LARGEST_NUMBER: Final = 2**62
"""Every number in `meta` is far below this."""


class SchemaMismatch(StoreUnavailable):
    """Another release of mainspring wrote the tables, and this one must not work with them."""

    def __init__(self, schema: int) -> None:
        super().__init__(schema)
        self.schema = schema

    def __str__(self) -> str:
        advice = "upgrade mainspring on this node"
        if self.schema < SQL_SCHEMA:
            advice = "choose another tablename, or use the version of mainspring that wrote them"
        return f"the tables have schema {self.schema}, and this version of mainspring knows only {SQL_SCHEMA}: {advice}"


def first_rows() -> list[tuple[str, int]]:
    """Return the rows of `meta` that a new store starts with."""
    schema = [(name, SQL_SCHEMA) for name in _SCHEMA_ROWS]
    return [
        *schema,
        ("versions", 0),
        ("clock", 0),
        ("stirs", 0),
        ("ends", 0),
        ("awaited", 0),
        ("made", random.getrandbits(62)),
    ]


def number(tx: Tx, name: str) -> int | None:
    """Return a number that the store keeps about itself; None if it was deleted or altered."""
    return next(_numbers(tx.raw("SELECT value FROM {meta} WHERE name = ?", name)), None)


def _numbers(rows: list[Row]) -> Iterator[int]:
    return (value for (value,) in rows if isinstance(value, int) and 0 <= value < _LARGEST_NUMBER)


def other_schema(tx: Tx) -> SchemaMismatch | None:
    """Return the error to raise if the tables have another schema."""
    found = set(_numbers(tx.raw(f"SELECT value FROM {{meta}} WHERE name IN {_SCHEMA_ROWS}")))
    return None if not found or SQL_SCHEMA in found else SchemaMismatch(max(found))


def altered(tx: Tx) -> list[str]:
    """Return the names of the rows that are missing or have a value that no store writes."""
    return [name for name, _ in first_rows() if _is_altered(name, number(tx, name))]


def _is_altered(name: str, known: int | None, least: int = 0) -> bool:
    if name in _SCHEMA_ROWS:
        return known != SQL_SCHEMA
    return known is None or (name == "versions" and known < least)


def mend(tx: Tx, least: int = 0) -> None:
    """Restore the rows that are missing or have a value that no store writes; versions restart above all in use."""
    for name, value in first_rows():
        if not _is_altered(name, number(tx, name), least):
            continue
        if name == "versions":
            [(highest,)] = tx.all(f"SELECT max(version) FROM {{jobs}} WHERE version BETWEEN 0 AND {_LARGEST_NUMBER}")
            value = max(least, int(highest or 0)) + VERSION_MARGIN
        log.error("the store's own number %r was altered or deleted; it goes on with %d", name, value)
        tx.run("DELETE FROM {meta} WHERE name = ?", name)
        tx.insert("meta", ("name", "value"), [(name, value)])


def take_versions(tx: Tx, count: int, least: int = 0) -> int:
    """Reserve the next `count` version numbers, all above `least`; return the last of them."""
    step = f"UPDATE {{meta}} SET value = value + ? WHERE name = 'versions' AND value BETWEEN ? AND {MOST_VERSIONS}"
    if not tx.run(step, count, least) or number(tx, "versions") is None:
        mend(tx, least)
        tx.run(step, count, least)
    end = number(tx, "versions")
    assert end is not None
    return end
