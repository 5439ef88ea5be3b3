"""One transaction in a SQL database: statements are written once, and each dialect translates them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainspring.jobstores.sqlalchemy.database import Database
    from mainspring.jobstores.sqlalchemy.schema import ColumnType

__all__ = ["Row", "Set", "Statements", "Tx"]

Row = tuple[Any, ...]
Set = str | tuple[str, str]
"""A column to set, or a column and an expression for it, of the new value `{new}` and the stored value `{old}`."""


class Statements(dict[str, str]):
    """A cache of translated statements; its keys have `?` for parameters, and words and tables in braces."""

    def __init__(self, words: Mapping[str, str], placeholder: str) -> None:
        self._words, self._placeholder = words, placeholder

    def __missing__(self, statement: str) -> str:
        text = self[statement] = statement.format_map(self._words).replace("?", self._placeholder)
        return text


class _ReadOnce:
    """Reads the store's time when a transaction first asks for it, unless the transaction already knows it."""

    # Not functools.cached_property: before Python 3.12 it holds a lock while one thread of the process asks the server.
    # All others wait for it, and a child forked meanwhile waits for ever.
    def __get__(self, tx: Tx, kind: type[Tx]) -> int:
        tx.now = tx._read_clock() + tx.database.shift
        return tx.now


class Tx(ABC):
    """One transaction, or single statements until `begin` is called."""

    begun = False
    may_fail = True
    """False in a caller's transaction, which a failed statement would end; otherwise one may fail and be repeated."""
    stirred = False
    """Set when runs change in a way that a sleeping loop may have to see."""
    rescheduled = False
    """Set when a job may be due earlier than the sleeping loops expect."""
    ended = False
    """Set when a run ends."""
    awaited = False
    """Set when a run ends and another process may be waiting for that."""
    now: int = _ReadOnce()  # type: ignore[assignment]
    """The store's time as this transaction sees it."""

    def __init__(self, database: Database, cursor: Any) -> None:
        self.database = database
        self.cursor = cursor
        self.texts = database.texts
        self.refused: list[str] = []  # the ids of the runs that were refused in this transaction

    def begin(self) -> None:  # noqa: B027
        """Begin a transaction, for work of more than one statement; call it once."""

    @staticmethod
    @abstractmethod
    def many(values: list[Any], /) -> Any:
        """Return the parameter for the values of `{in}`."""

    def all(self, statement: str, *params: Any) -> list[Row]:
        """Return all rows."""
        self.cursor.execute(self.texts[statement], params)
        rows: list[Row] = self.cursor.fetchall()
        return rows

    def one(self, statement: str, *params: Any) -> Row | None:
        """Return the first row, or None."""
        self.cursor.execute(self.texts[statement], params)
        rows: list[Row] = self.cursor.fetchall()
        return rows[0] if rows else None

    def run(self, statement: str, *params: Any) -> int:
        """Execute a statement; return how many rows it changed."""
        self.cursor.execute(self.texts[statement], params)
        count: int = self.cursor.rowcount
        return count

    def table(self, columns: Sequence[str], rest: str, *params: Any) -> Sequence[Sequence[Any]]:
        """Return the rows of `SELECT columns rest`; a dialect may read many rows faster this way than by `all`."""
        return self.all(f"SELECT {', '.join(columns)} {rest}", *params)

    def raw(self, statement: str, *params: Any) -> list[Row]:
        """Return all rows, even those with altered values."""
        return self.all(statement, *params)

    def undecodable(self, table: str, columns: Sequence[ColumnType]) -> list[Any]:
        """Return the keys of rows with invalid text; only SQLite can have such rows."""
        return []

    @abstractmethod
    def insert(self, table: str, columns: tuple[str, ...], rows: Sequence[Row]) -> None:
        """Insert rows."""

    @abstractmethod
    def update(self, table: str, columns: tuple[Set, ...], rows: Sequence[Row]) -> None:
        """Update rows by id: each row is the id, then the values of `columns`."""

    def _read_clock(self) -> int:
        """Return the database's time in microseconds; called only if `now` was not set before."""
        raise NotImplementedError
