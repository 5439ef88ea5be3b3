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
"""A column to set, or the column and the expression over its new value `{new}` and its present one `{old}`."""


class Statements(dict[str, str]):
    """Statements as the driver takes them, by how they are written: with `?`, and words and tables in braces."""

    def __init__(self, words: Mapping[str, str], placeholder: str) -> None:
        self._words, self._placeholder = words, placeholder

    def __missing__(self, statement: str) -> str:
        text = self[statement] = statement.format_map(self._words).replace("?", self._placeholder)
        return text


class Tx(ABC):
    """One transaction, or single statements until `begin` is called."""

    begun = False
    may_fail = True
    """Whether a statement may fail and be repeated; in a transaction of the caller's, a failure would end it."""
    stirred = False
    """Set when runs change so that a sleeping loop may need to look."""
    rescheduled = False
    """Set when a job may be due earlier than the sleeping loops expect."""
    ended = False
    """Set when a run ends."""
    awaited = False
    """Set when a run ends and another process may wait for that."""
    _now: int | None = None

    def __init__(self, database: Database, cursor: Any) -> None:
        self.database = database
        self.cursor = cursor
        self.texts = database.texts
        self.refused: list[str] = []  # the runs that were refused

    def begin(self) -> None:  # noqa: B027
        """Begin a transaction, for work of more than one statement; call it once."""

    @staticmethod
    @abstractmethod
    def many(values: list[Any], /) -> Any:
        """Return the parameter for the values of `{in}`."""

    @property
    def now(self) -> int:
        """The store's time as this transaction sees it, read once."""
        # Not functools.cached_property: before Python 3.12 it lets one thread of the process at a time ask a server,
        # and a child forked meanwhile waits for ever.
        now = self._now
        if now is None:
            now = self._now = self._read_clock() + self.database.shift
        return now

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
        """Return possibly many rows of `SELECT columns rest`."""
        return self.all(f"SELECT {', '.join(columns)} {rest}", *params)

    def raw(self, statement: str, *params: Any) -> list[Row]:
        """Return all rows, even those with altered values."""
        return self.all(statement, *params)

    def undecodable(self, table: str, columns: Sequence[ColumnType]) -> list[Any]:
        """Return the keys of rows whose text is not valid."""
        return []

    @abstractmethod
    def insert(self, table: str, columns: tuple[str, ...], rows: Sequence[Row]) -> None:
        """Insert rows."""

    @abstractmethod
    def update(self, table: str, columns: tuple[Set, ...], rows: Sequence[Row]) -> None:
        """Update rows by id: each row is the id, then the values of `columns`."""

    @abstractmethod
    def _read_clock(self) -> int:
        """Return the database's time in microseconds."""
