"""SQLite's statements: many rows at once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mainspring.jobstores.sqlalchemy.database import Row, Set, Tx
from mainspring.jobstores.sqlalchemy.schema import Kept

if TYPE_CHECKING:
    from mainspring.jobstores.sqlalchemy.sqlite.dialect import SQLiteDatabase

__all__ = ["SQLiteTx"]

_BLOBS: Final = frozenset(["payload", "state", "live"])
_SIZES: Final = (256, 64, 16, 4, 1)
_decode: Final = msgspec.json.Decoder().decode


class SQLiteTx(Tx):
    """A transaction on the writer connection, or statements on a reader's."""

    database: SQLiteDatabase

    # With each step of a statement, and a row is a step, the driver lets go of the interpreter lock and has to win it
    # back from threads that work meanwhile. So many rows are read as one, and written by few statements.

    def table(self, columns: Sequence[str], rest: str, *params: Any) -> Sequence[Sequence[Any]]:
        shown = (f"CASE WHEN {name} IS NOT NULL THEN hex({name}) END" if name in _BLOBS else name for name in columns)
        one = f"SELECT json_group_array(json_array({', '.join(shown)})) FROM (SELECT {', '.join(columns)} {rest})"
        try:
            [(text,)] = self.all(one, *params)
            rows: list[list[Any]] = _decode(text)
        except (sqlite3.OperationalError, msgspec.DecodeError) as error:
            if isinstance(error, sqlite3.OperationalError) and "JSON" not in str(error):
                raise
            return super().table(columns, rest, *params)  # a value that JSON does not have: one damaged record
        for place in [place for place, name in enumerate(columns) if name in _BLOBS]:
            for row in rows:
                if row[place] is not None:
                    row[place] = bytes.fromhex(row[place])
        return rows

    def raw(self, statement: str, *params: Any) -> list[Row]:
        connection = self.cursor.connection
        before, connection.text_factory = connection.text_factory, _text_or_bytes
        try:
            return self.all(statement, *params)
        finally:
            connection.text_factory = before

    def undecodable(self, table: str, columns: Sequence[Kept]) -> list[Any]:
        if not self.database.suspect:  # only then is it worth to read everything
            return []
        names = [column.name for column in columns if column.kind == "text"]
        if not names:
            return []
        rows = self.raw(f"SELECT rowid, {', '.join(names)} FROM {{{table}}}")
        return [row[0] for row in rows if any(type(value) is bytes for value in row[1:])]

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        statement = f"INSERT INTO {{{table}}} ({','.join(columns)}) VALUES {{new}}"
        self._write(statement, len(columns), rows)

    def update(self, table: str, columns: Sequence[Set], rows: Sequence[Row]) -> None:
        sets = []
        for number, column in enumerate(columns, 2):
            name, value = (column, "{new}") if isinstance(column, str) else column
            sets.append(f"{name} = {value.format(new=f'new.column{number}', old=f'{{{table}}}.{name}')}")
        statement = f"UPDATE {{{table}}} SET {', '.join(sets)} FROM (VALUES {{new}}) AS new WHERE id = new.column1"
        self._write(statement, len(columns) + 1, rows)

    def _write(self, statement: str, width: int, rows: Sequence[Row]) -> None:
        """Execute a statement for all rows, for many of them at once; of each size there is one text to prepare."""
        row, done = f"({','.join('?' * width)})", 0
        while done < len(rows):
            size = next(size for size in _SIZES if size <= len(rows) - done)
            text = self.database.text(statement.replace("{new}", ",".join([row] * size)))
            self.cursor.execute(text, list(chain.from_iterable(rows[done : done + size])))
            done += size

    def _read_clock(self) -> int:
        return self.database.clock.now()

    def _params(self, params: tuple[Any, ...]) -> Any:
        return [json.dumps(param, ensure_ascii=False) if type(param) is list else param for param in params]


def _text_or_bytes(value: bytes) -> str | bytes:
    """Return text as SQLite has it, as bytes if it is none."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
