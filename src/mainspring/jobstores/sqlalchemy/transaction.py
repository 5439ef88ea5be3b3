"""One transaction in a SQL database: statements are written once, and each dialect says them in its way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainspring.jobstores.sqlalchemy.database import Database
    from mainspring.jobstores.sqlalchemy.schema import ColumnType

__all__ = ["Row", "Set", "Statements", "Tx"]

Row = tuple[Any, ...]
Set = str | tuple[str, str]
"""A column to set, or the column and the expression over its new value `{new}` and its present one `{old}`."""


class Statements(dict[str, str]):
    """Statements as the driver takes them, by how they are written: with `?`, and words and tables in braces."""

    def __init__(self, words: Mapping[str, str], placeholder: str) -> None:
        self._words, self._placeholder = words, placeholder

    def __missing__(self, statement: str) -> str:
        text = self[statement] = statement.format_map(self._words).replace("?", self._placeholder)
        return text


class Tx(ABC):
    """One transaction, or statements that stand alone until `begin` is called."""

    begun = False

    def __init__(self, database: Database, cursor: Any) -> None:
        self.database = database
        self.cursor = cursor
        self.texts = database.texts
        self.stirred = False  # something has changed that a sleeping loop may want to know

    def begin(self) -> None:  # noqa: B027
        """Begin a transaction, for what is more than one statement; called once."""

    @staticmethod
    @abstractmethod
    def many(values: list[Any], /) -> Any:
        """Make a parameter of the values that `{in}` compares with."""

    @cached_property
    def now(self) -> int:
        """The store's time as this transaction sees it."""
        return self._read_clock() + self.database.shift

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
        """Return what may be many rows: `SELECT columns rest`."""
        return self.all(f"SELECT {', '.join(columns)} {rest}", *params)

    def raw(self, statement: str, *params: Any) -> list[Row]:
        """Return all rows, whatever somebody has put into them."""
        return self.all(statement, *params)

    def undecodable(self, table: str, columns: Sequence[ColumnType]) -> list[Any]:
        """Return what finds the rows of a table whose text is none."""
        return []

    @abstractmethod
    def insert(self, table: str, columns: tuple[str, ...], rows: Sequence[Row]) -> None:
        """Insert rows."""

    @abstractmethod
    def update(self, table: str, columns: tuple[Set, ...], rows: Sequence[Row]) -> None:
        """Update rows by id: each begins with the id, then come the values of `columns`."""

    @abstractmethod
    def _read_clock(self) -> int:
        """Return the database's time in microseconds."""
