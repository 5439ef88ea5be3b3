"""The statements of SQLite: each reads or writes many rows at once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import cache, lru_cache
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mainspring.core.lanes import Want
from mainspring.jobstores.records.rows import RunRow, SettleRow
from mainspring.jobstores.sqlalchemy.database import StoreTx
from mainspring.jobstores.sqlalchemy.schema import ColumnType
from mainspring.jobstores.sqlalchemy.steps.claims import DUE, HELD, LEVELS, NEXT, Look, queues_of
from mainspring.jobstores.sqlalchemy.steps.runs import (
    CLAIMED,
    FIRED,
    FRESH,
    SUCCEEDED,
    Terms,
    claimed_row,
    fired_row,
    fresh_row,
    is_fresh,
    is_plain_success,
    settle_others,
    succeeded_row,
)
from mainspring.jobstores.sqlalchemy.transaction import Row, Set

if TYPE_CHECKING:
    from mainspring.jobstores.sqlalchemy.sqlite.dialect import SQLiteDatabase

__all__ = ["SQLiteTx"]

_ID, _TOKEN = attrgetter("id"), attrgetter("token")
_BLOBS: Final = frozenset(["payload", "state", "live"])
_LARGE: Final = "-"
_LARGE_BYTES: Final = 16 * 1024
_SHOWN_BLOB: Final = (
    f"CASE WHEN length({{0}}) > {_LARGE_BYTES} THEN '{_LARGE}' WHEN {{0}} IS NOT NULL THEN hex({{0}}) END"
)
"""A blob among rows that are read as one value. That value is limited to 1 GB, so it only marks a large blob."""
_INSERT_SIZES: Final = (256, 64, 16, 4, 1)
_UPDATE_SIZES: Final = (32, 8, 1)
"""How many rows one statement writes. A few rows cost less one by one, and a long update costs more for each row."""
_NAMES: Final = tuple(f"c{number}" for number in range(1, 100))
"""The names of the parameters for a row that is updated alone."""
_ADD_ONE: Final = (
    f"INSERT INTO {{runs}} ({', '.join(FRESH + FIRED)}, status, attempt, cancelling)"
    f" SELECT {', '.join('?' * len(FRESH + FIRED))}, 'pending', 0, 0"
    " WHERE NOT EXISTS (SELECT 1 FROM {gone} WHERE id = ? AND expires_at > ?) ON CONFLICT DO NOTHING"
)
_HELD_PLAINLY: Final = (
    "SELECT json_group_array(token) FROM (SELECT token FROM {runs} WHERE id {in} AND status = 'running'"
    " AND followed = 0 AND at_gate IS NULL AND cancelling = 0 AND unique_key IS NULL ORDER BY id)"
)
_LOOK: Final = (
    "SELECT (SELECT json_group_object(name, allowed) FROM {queues} WHERE name {in}),"
    " EXISTS (SELECT 1 FROM {runs} WHERE status = 'pending' AND at_gate IS NOT NULL AND lane {in}),"
    " EXISTS (SELECT 1 FROM {runs} WHERE status = 'running' AND token = ?),"
    f" (SELECT json_group_array(json_array(lane, priority, run_at)) FROM ({LEVELS[False]}))"
)
"""The first look of a claim: the limits, whether runs wait at gates, whether the token holds runs, and the levels."""
_decode: Final = msgspec.json.Decoder().decode


class SQLiteTx(StoreTx):
    """A transaction on the writer connection, or single statements on a reader's."""

    database: SQLiteDatabase
    begun = True
    many = staticmethod(json.JSONEncoder(ensure_ascii=False).encode)

    def add_runs(self, runs: Sequence[RunRow]) -> dict[str, str | None]:
        run = runs[0]
        if len(runs) > 1 or not is_fresh(run):
            return super().add_runs(runs)
        run_id = run.id
        added = self.run(_ADD_ONE, *fresh_row(run), *fired_row(run), run_id, self.now)
        self.stirred |= bool(added)
        return {run_id: run_id if added else ""}

    def look(self, wants: Sequence[Want], lanes: list[str], node: str, token: str, lease: float) -> Look:
        queues, names = _names(tuple(lanes))
        [(limits, gated, holds, levels)] = self.all(_LOOK, queues, names, token, names)
        return Look(self.now, _decode(limits), bool(gated), self.all(HELD, token) if holds else [], _decode(levels))

    def take(self, lanes: list[str], priority: int, room: int, terms: Terms) -> tuple[list[RunRow], list[int] | None]:
        if len(lanes) > 1:
            return super().take(lanes, priority, room, terms)
        level = lanes[0], priority, terms.now
        [(found, later)] = self.all(_DUE_AND_NEXT, *level, room, *level)
        runs = self.lease([claimed_row(row, terms) for row in self._rows(CLAIMED, found)], terms)
        if len(runs) == room:  # others may be due, too: `next_of` finds out
            return runs, None
        return runs, [] if later is None else [later]

    def settle(self, outcomes: Sequence[SettleRow]) -> list[bool]:
        plain = list(filter(is_plain_success, outcomes))
        if not plain or (len(outcomes) > 1 and len({each.run.id for each in outcomes}) < len(outcomes)):
            return super().settle(outcomes)
        if not self.begun:
            self.begin()
        return settle_others(outcomes, self._succeed(plain), super().settle)

    def _succeed(self, outcomes: list[SettleRow]) -> Collection[str]:
        """Write the successes if all their runs are as the claims know them, otherwise none; return the written ids."""
        runs = sorted([each.run for each in outcomes], key=_ID)
        ids = list(map(_ID, runs))
        [(tokens,)] = self.all(_HELD_PLAINLY, self.many(ids))
        if _decode(tokens) != list(map(_TOKEN, runs)):
            return ()
        now = self.now
        self.update("runs", SUCCEEDED, [succeeded_row(run, now) for run in runs])
        self.count_ends(Counter(succeeded=len(runs)))
        self.note_ends(())
        self.make_room({}, runs)
        return set(ids)

    # The driver releases the GIL for each step of a statement, that is, for each row, and must win it back from other
    # threads. So read many rows as one value, and write them with few statements.

    def table(self, columns: Sequence[str], rest: str, *params: Any) -> Sequence[Sequence[Any]]:
        [(text,)] = self.all(_as_json(tuple(columns), rest), *params)
        return self._rows(columns, text)

    def _rows(self, columns: Sequence[str], text: str) -> list[list[Any]]:
        """Return rows that were read as one value; read the large blobs, which that value leaves out, one by one."""
        rows: list[list[Any]] = _decode(text)
        for place, name in enumerate(columns):
            if name in _BLOBS:
                for row in rows:
                    if row[place] == _LARGE:
                        [(row[place],)] = self.all(f"SELECT {name} FROM {{runs}} WHERE id = ?", row[0])
                    elif row[place] is not None:
                        row[place] = bytes.fromhex(row[place])
        return rows

    def raw(self, statement: str, *params: Any) -> list[Row]:
        connection = self.cursor.connection
        before, connection.text_factory = connection.text_factory, _text_or_bytes
        try:
            return self.all(statement, *params)
        finally:
            connection.text_factory = before

    def undecodable(self, table: str, columns: Sequence[ColumnType]) -> list[Any]:
        if not self.database.suspect:  # only then is it worth reading everything
            return []
        names = [column.name for column in columns if column.kind == "text"]
        if not names:
            return []
        rows = self.raw(f"SELECT rowid, {', '.join(names)} FROM {{{table}}}")
        return [row[0] for row in rows if any(type(value) is bytes for value in row[1:])]

    def insert(self, table: str, columns: tuple[str, ...], rows: Sequence[Row]) -> None:
        self._write(_insert, _INSERT_SIZES, table, columns, rows)

    def update(self, table: str, columns: tuple[Set, ...], rows: Sequence[Row]) -> None:
        """Update rows by id; an expression without `{new}` takes no value from the rows, so it must come last."""
        self._write(_update, _UPDATE_SIZES, table, columns, rows)

    def _write(
        self,
        statement: Callable[..., str],
        sizes: Sequence[int],
        table: str,
        columns: tuple[Any, ...],
        rows: Sequence[Row],
    ) -> None:
        """Execute a statement for all rows, many at a time; each batch size has one text, which the driver caches."""
        done = 0
        for size in sizes:
            while len(rows) - done >= size:
                text, part = self.texts[statement(table, columns, size)], rows[done : done + size]
                named = statement is _update and size == 1
                params = dict(zip(_NAMES, part[0], strict=False)) if named else list(chain.from_iterable(part))
                self.cursor.execute(text, params)
                done += size

    def _read_clock(self) -> int:
        return self.database.clock.now()


@lru_cache(100)
def _names(lanes: tuple[str, ...]) -> tuple[str, str]:
    """Return the queues of lanes, and the lanes, as parameters; cached: a node asks for the same ones all the time."""
    return SQLiteTx.many(queues_of(lanes)), SQLiteTx.many(lanes)


@cache
def _as_json(columns: tuple[str, ...], rest: str) -> str:
    """Return the statement that reads rows of columns as one value; for blobs, the first column must be a run's id."""
    shown = [_SHOWN_BLOB.format(name) if name in _BLOBS else name for name in columns]
    return f"SELECT json_group_array(json_array({', '.join(shown)})) FROM (SELECT {', '.join(columns)} {rest})"


_DUE_AND_NEXT: Final = f"SELECT ({_as_json(CLAIMED, DUE[False])}), ({NEXT[False]})"
"""The first due runs of a level, and the time of its first run that is not due."""


@cache
def _insert(table: str, columns: tuple[str, ...], size: int) -> str:
    return f"INSERT INTO {{{table}}} ({','.join(columns)}) VALUES {_marks(len(columns), size)}"


@cache
def _update(table: str, columns: tuple[Set, ...], size: int) -> str:
    sets = []
    for number, column in enumerate(columns, 2):
        name, value = (column, "{new}") if isinstance(column, str) else column
        # Use named parameters: an expression may have one twice, and Python 3.12 warns about numbered ones.
        new = f":c{number}" if size == 1 else f"new.column{number}"
        sets.append(f"{name} = {value.format(new=new, old=f'{{{table}}}.{name}')}")
    if size == 1:  # for one row, this is twice as quick as FROM
        return f"UPDATE {{{table}}} SET {', '.join(sets)} WHERE id = :c1"
    width = 1 + sum(isinstance(column, str) or "{new}" in column[1] for column in columns)
    new = f"(VALUES {_marks(width, size)}) AS new"
    return f"UPDATE {{{table}}} SET {', '.join(sets)} FROM {new} WHERE id = new.column1"


def _marks(width: int, size: int) -> str:
    return ",".join([f"({','.join('?' * width)})"] * size)


def _text_or_bytes(value: bytes) -> str | bytes:
    """Return the text of a value; the bytes themselves if they are not valid UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
