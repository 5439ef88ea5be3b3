"""The numbers that a store keeps of itself: its schema, the last version given, the time last relied on."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from typing import Final

from mainspring.errors import StoreUnavailable
from mainspring.jobstores.sqlalchemy.transaction import Row, Tx

__all__ = ["SQL_SCHEMA", "SchemaMismatch", "altered", "first_rows", "mend", "number", "other_schema", "take_versions"]

log = logging.getLogger("mainspring.jobstores.sqlalchemy")

SQL_SCHEMA: Final = 3
"""The schema of the tables. Whoever changes the tables raises it: nodes refuse tables of another schema."""
VERSION_MARGIN: Final = 1_000_000
"""Versions that processes may have been given and not used yet."""
MOST_VERSIONS: Final = 2**61
"""A higher version was given by nobody."""
_SCHEMA_ROWS: Final = ("schema", "oldest_reader")
"""Two rows that say the same: one that somebody altered must not stop all nodes."""
_LARGEST_NUMBER: Final = 2**62
"""No number in `meta` comes near this."""


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
    return [*schema, ("versions", 0), ("clock", 0), ("stirs", 0), ("made", random.getrandbits(62))]


def number(tx: Tx, name: str) -> int | None:
    """Return a number that the store keeps of itself; None if somebody has deleted or altered it."""
    return next(_numbers(tx.raw("SELECT value FROM {meta} WHERE name = ?", name)), None)


def _numbers(rows: list[Row]) -> Iterator[int]:
    return (value for (value,) in rows if isinstance(value, int) and 0 <= value < _LARGEST_NUMBER)


def other_schema(tx: Tx) -> SchemaMismatch | None:
    """Return the error to raise if the tables are of another schema."""
    found = set(_numbers(tx.raw(f"SELECT value FROM {{meta}} WHERE name IN {_SCHEMA_ROWS}")))
    return None if not found or SQL_SCHEMA in found else SchemaMismatch(max(found))


def altered(tx: Tx) -> list[str]:
    """Return the names of the numbers that are not there, or are none."""
    return [name for name, _ in first_rows() if _is_altered(name, number(tx, name))]


def _is_altered(name: str, known: int | None, least: int = 0) -> bool:
    if name in _SCHEMA_ROWS:
        return known != SQL_SCHEMA
    return known is None or (name == "versions" and known < least)


def mend(tx: Tx, least: int = 0) -> None:
    """Put back the numbers that are not there or are none; versions begin anew above all that are in use."""
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
    """Return the last of `count` numbers above `least` that nobody has been or will be given again."""
    step = f"UPDATE {{meta}} SET value = value + ? WHERE name = 'versions' AND value BETWEEN ? AND {MOST_VERSIONS}"
    if not tx.run(step, count, least) or number(tx, "versions") is None:
        mend(tx, least)
        tx.run(step, count, least)
    end = number(tx, "versions")
    assert end is not None
    return end
