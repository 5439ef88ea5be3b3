"""Alter one value of a SQL store behind its back, then use the store as nodes and people do."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import create_engine, inspect, text

from mainspring.codec import Codec, Keyring
from mainspring.core.run import After
from mainspring.core.waiting.gates import Limit
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.sqlalchemy.store import SQLAlchemyJobStore
from mainspring.testing.conformance.helpers import add_run
from tests.security.altered import KEY

__all__ = ["ROWS", "Alteration", "Database", "alterations", "fill_flows"]

ROWS: Final = {  # the rows that are altered
    "jobs": ("id = 'job-victim'", "id = 'job-late'"),
    "runs": (
        "id = 'waits-victim'",
        "id = 'runs-victim'",
        "id = 'ended-victim'",
        "id = 'blocked-victim'",
        "id = 'gated-victim'",
        "job_id = 'chain'",
    ),
    "edges": ("succ = 'blocked-victim'",),
    "limits": ("id = 'gate of gated-victim'",),
    "broken": ("id = 'broken-victim'",),
    "gone": ("id = 'gone-victim'",),
    "queues": ("name = 'paused-victim'",),
    "nodes": ("id = 'node-victim'",),
    "totals": ("status = 'succeeded'",),
    "meta": tuple(f"name = '{name}'" for name in ("schema", "oldest_reader", "versions", "clock", "stirs")),
}
NUMBERS: Final = (None, -1, 0, 1, 3, 2**31 - 1, 2**62, 2**63 - 1, -(2**63))
TEXTS: Final = (None, "", "abc", "pending", "blocked", "running", "broken", "\x1b[31m\u202e", "x" * 250, "1")
BYTES: Final = (None, b"", b"\xff", b"\x80abc", b"\x00" * 70_000)
FOREIGN: Final = (1.5, float("inf"), "abc", "", "\udcff", b"\xff\x00", b"", 7)
"""What SQLite keeps in a column of any type; a lone surrogate stands for bytes that are no UTF-8."""


def fill_flows(store: JobStore) -> None:
    """Put in runs that come after one which nobody alters, and runs that have gates."""
    for name in ("blocked-victim", "blocked-good"):
        add_run(store, name, after=(After("waits-good"),))
    for name in ("gated-victim", "gated-good"):
        store.set_gate(f"gate of {name}", 2)
        add_run(store, name, gate=f"gate of {name}", gate_spec=Limit(1).to_text())


class Alteration(NamedTuple):
    """One value of one row, and what it becomes."""

    table: str
    row: str
    column: str
    value: Any

    def __str__(self) -> str:
        return f"{self.table}.{self.column} where {self.row} becomes {self.value!r:.40}"


class Database:
    """Looks into the tables and writes to them behind the store's back."""

    def __init__(self, url: str, prefix: str = "mainspring") -> None:
        self.url = url
        self._prefix = prefix
        self._engine = create_engine(url)
        self.kind = self._engine.dialect.name

    def open(self) -> SQLAlchemyJobStore:
        """Open the store as a new process does."""
        store = SQLAlchemyJobStore(self.url, tablename=f"{self._prefix}_jobs", codec=Codec(Keyring([KEY])))
        store.start(None, "default")
        return store

    def columns(self, table: str) -> list[tuple[str, str]]:
        """Return the columns of a table with the kind of their values."""
        found = inspect(self._engine).get_columns(f"{self._prefix}_{table}")
        return [(each["name"], _kind(each["type"])) for each in found]

    def value(self, table: str, row: str, column: str) -> Any:
        """Return one value."""
        with self._engine.connect() as connection:
            return (
                connection.execute(text(f"SELECT {column} FROM {self._prefix}_{table} WHERE {row}")).scalars().first()
            )

    def alter(self, change: Alteration) -> bool:
        """Write one value; False if the database itself refuses it."""
        table, row, column, value = change
        place = ":value"
        if isinstance(value, str) and not value.isprintable() and "\udcff" in value:
            place, value = "CAST(:value AS TEXT)", b"\xff"
        try:
            with self._engine.begin() as connection:
                connection.execute(
                    text(f"UPDATE {self._prefix}_{table} SET {column} = {place} WHERE {row}"),
                    {"value": value},
                )
        except Exception:
            return False
        return True

    def clear(self) -> None:
        """Delete all that is in the tables; what a store knows of itself it puts back when it is opened."""
        with self._engine.begin() as connection:
            for table in ROWS:
                connection.execute(text(f"DELETE FROM {self._prefix}_{table}"))

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def _kind(sql_type: Any) -> str:
    try:
        return {int: "number", str: "text", bytes: "bytes"}[sql_type.python_type]
    except (KeyError, NotImplementedError):
        return "bytes"


def alterations(database: Database, chance: random.Random) -> Iterator[Alteration]:
    """Yield every alteration to try, one bit of the present value among them."""
    for table, rows in ROWS.items():
        for row in rows:
            for column, kind in database.columns(table):
                present = database.value(table, row, column)
                values: list[Any] = list({"number": NUMBERS, "text": TEXTS, "bytes": BYTES}[kind])
                values += _flipped(present, chance)
                if database.kind == "sqlite":
                    values += FOREIGN
                yield from (Alteration(table, row, column, value) for value in values)


def _flipped(value: Any, chance: random.Random) -> Sequence[Any]:
    """Return the value with one bit changed, at a few places."""
    if isinstance(value, int):
        return [value ^ (1 << bit) for bit in chance.sample(range(62), 4)]
    if isinstance(value, str) and value:
        place = chance.randrange(len(value))
        return [value[:place] + chr(ord(value[place]) ^ 1) + value[place + 1 :]]
    if isinstance(value, bytes | memoryview) and len(value):
        data = bytearray(value)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        return [bytes(data), bytes(data[: len(data) // 2])]
    return []
