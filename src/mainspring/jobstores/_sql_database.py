"""What the SQL dialects share: transactions that are repeated when they collide, errors by kind, numbers, waking."""

from __future__ import annotations

import logging
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from sqlalchemy import MetaData
from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError

from mainspring.errors import OutcomeUnknown, StoreUnavailable
from mainspring.jobstores._sql_schema import READER, SCHEMA, SchemaTooNew, Tables
from mainspring.jobstores._sql_waking import Waker

__all__ = ["ANSWER", "MIGRATING", "TIMEOUT", "Again", "Database", "ServerDatabase", "Tx"]

T = TypeVar("T")
Row = tuple[Any, ...]
Set = str | tuple[str, str]
"""A column to set, or the column and the expression over its new value `{new}` and its present one `{old}`."""

TIMEOUT: Final = 4.5
"""Seconds that any one step may take: connecting, a statement, waiting for a lock. Less than a third of a lease."""
MIGRATING: Final = 60
"""Seconds for which a node waits while another creates or migrates the tables."""
ANSWER: Final = TIMEOUT + 0.3
"""Seconds after which this side gives up on a server that does not even say that its own time-out has passed."""
AT_ONCE: Final = 1.0
REPLACED: Final = 16
"""Dead connections that one call takes from the pool, at most, before it gives up."""
REPEATS: Final = 8
"""How often a transaction is begun again when it collided with another."""
BLOCK: Final = 1000
"""Versions that a process takes at once."""

log = logging.getLogger("mainspring.jobstores.sqlalchemy")


class Again(Exception):
    """The transaction collided with another and changed nothing: begin it again."""


class Tx(ABC):
    """One transaction: statements are written once, with `?` and words in braces, and said in the dialect's way."""

    def __init__(self, database: Database, cursor: Any) -> None:
        self.database = database
        self.cursor = cursor
        self.stirred = False  # something has changed that a sleeping loop may want to know
        self._now: int | None = None

    @property
    def now(self) -> int:
        """The store's time as this transaction sees it."""
        if self._now is None:
            self._now = self._read_clock() + self.database.shift
        return self._now

    def all(self, statement: str, *params: Any) -> list[Row]:
        """Return all rows."""
        self.cursor.execute(self.database.text(statement), self._params(params))
        rows: list[Row] = self.cursor.fetchall()
        return rows

    def one(self, statement: str, *params: Any) -> Row | None:
        """Return the first row, or None."""
        rows = self.all(statement, *params)
        return rows[0] if rows else None

    def run(self, statement: str, *params: Any) -> int:
        """Execute a statement; return how many rows it changed."""
        self.cursor.execute(self.database.text(statement), self._params(params))
        count: int = self.cursor.rowcount
        return count

    @abstractmethod
    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Insert rows."""

    @abstractmethod
    def update(self, table: str, columns: Sequence[Set], rows: Sequence[Row]) -> None:
        """Update rows by id: each begins with the id, then come the values of `columns`."""

    @abstractmethod
    def _read_clock(self) -> int:
        """Return the database's time in microseconds."""

    def _params(self, params: tuple[Any, ...]) -> Any:
        """Adapt parameters; a list is what `{in}` compares with."""
        return params


class Database(ABC):
    """A database of one dialect, opened in one process."""

    kind: str
    placeholder: str = "?"
    one_writer: bool = False
    """Whether a transaction that may write keeps all others from writing."""
    words: dict[str, str]
    """What the words in braces mean, besides the names of tables."""

    def __init__(
        self, engine: Engine, tablename: str, metadata: MetaData, schema: str | None, *, own: bool = True
    ) -> None:
        self.engine = engine
        self.own = own  # whether nobody else uses the engine
        self.shift = 0
        self.too_new: int | None = None
        self._tablename, self._metadata, self._schema = tablename, metadata, schema
        self._texts: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._block: Iterator[int] = iter(())
        self._block_lock = threading.Lock()
        # Each of these rows has few writers, so that counting does not put commits in line.
        self.slot = random.randrange(16)

    # -- opening -----------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect, create or migrate the tables, and see whether this release may use them."""
        collation = self._prepare()
        tables = Tables(self._tablename, self._metadata, self._schema, self.kind, collation)
        self._names = tables.names(self.engine.dialect)
        self._migrate(tables)
        self.read(self.look_at_schema)
        if self._has_apscheduler():
            log.info(
                "the database also holds APScheduler's table apscheduler_jobs, which is left alone; "
                "`mainspring import` copies its jobs"
            )

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    @abstractmethod
    def _prepare(self) -> str | None:
        """Check that the server can be used; return the collation of its text columns, if it needs one."""

    @abstractmethod
    def _migrate(self, tables: Tables) -> None:
        """Create or migrate the tables under a lock that all nodes respect."""

    @abstractmethod
    def _has_apscheduler(self) -> bool:
        """Tell whether APScheduler's default table is there too."""

    def _first_rows(self, tx: Tx) -> None:
        """Write what a new store starts with; a store that is there already is left as it is."""
        known = {name for (name,) in tx.all("SELECT name FROM {meta}")}
        first = {"schema": SCHEMA, "oldest_reader": READER, "versions": 0, "clock": 0, "stirs": 0}
        tx.insert("meta", ("name", "value"), [item for item in first.items() if item[0] not in known])

    def look_at_schema(self, tx: Tx) -> None:
        """Note whether newer nodes have forbidden this release to work."""
        row = tx.one("SELECT value FROM {meta} WHERE name = 'oldest_reader'")
        oldest = READER if row is None else row[0]
        if oldest > READER and self.too_new != oldest:
            log.error("%s", SchemaTooNew(oldest))
        self.too_new = oldest if oldest > READER else None

    # -- statements --------------------------------------------------------------------------------------------

    def text(self, statement: str) -> str:
        """Return a statement as the driver takes it."""
        known = self._texts.get(statement)
        if known is None:
            known = statement.format_map({**self.words, **self._names}).replace("?", self.placeholder)
            self._texts[statement] = known
        return known

    def name(self, table: str) -> str:
        """Return the quoted name of a table."""
        return self._names[table]

    @abstractmethod
    def read(self, work: Callable[[Tx], T]) -> T:
        """Do work that changes nothing."""

    @abstractmethod
    def write(self, work: Callable[[Tx], T]) -> T:
        """Do work in one transaction; `work` may be called again and must leave no trace outside of it."""

    def versions(self, count: int) -> list[int]:
        """Return numbers that nobody has been or will be given again."""
        with self._block_lock:
            taken = list(islice(self._block, count))
            if len(taken) < count:
                missing = count - len(taken)
                size = missing + BLOCK
                # In a transaction of its own: were it undone with another, the numbers would come twice.
                end = self.write(lambda tx: _take_block(tx, size))
                self._block = iter(range(end - size + 1, end + 1))
                taken += islice(self._block, missing)
            return taken

    # -- waking ------------------------------------------------------------------------------------------------

    waker: Waker

    def wait(self, cursor: int, timeout: float) -> int:
        """Sleep until something has changed since `cursor`, or for `timeout` seconds."""
        return self.waker.wait(cursor, timeout)

    # -- errors ------------------------------------------------------------------------------------------------

    def unavailable(self, error: BaseException, kind: type[StoreUnavailable] = StoreUnavailable) -> StoreUnavailable:
        """Make the error to raise for a driver's: what failed where, without the password."""
        said = str(error.__cause__ if isinstance(error, SQLAlchemyError) and error.__cause__ else error)
        url = self.engine.url
        if url.password is not None:
            said = said.replace(str(url.password), "***")
        where = url.render_as_string(hide_password=True)
        return kind(f"{where}: {type(error).__name__}: {' '.join(said.split()) or 'no reason was given'}")


def _take_block(tx: Tx, size: int) -> int:
    tx.run("UPDATE {meta} SET value = value + ? WHERE name = 'versions'", size)
    row = tx.one("SELECT value FROM {meta} WHERE name = 'versions'")
    if row is None:
        raise StoreUnavailable("the table meta has lost its row 'versions'; restore it from a backup")
    end: int = row[0]
    return end


class ServerDatabase(Database):
    """A database server: pooled connections, each in autocommit mode, transactions begun and ended by hand."""

    def read(self, work: Callable[[Tx], T]) -> T:
        """Do work that changes nothing, each statement by itself."""
        return self._do(lambda connection: work(self._tx(connection)), lambda connection: None)

    def write(self, work: Callable[[Tx], T]) -> T:
        """Do work in one transaction, begun again if it collides with another."""

        def transact(connection: Any) -> tuple[T, bool]:
            tx = self._begin(connection)
            return work(tx), tx.stirred

        for attempt in range(REPEATS):
            try:
                result, stirred = self._do(transact, self._commit)
                break
            except Again as collision:
                if attempt == REPEATS - 1:
                    raise self.unavailable(collision.__cause__ or collision) from collision
                time.sleep(random.random() * 0.002 * 2**attempt)
        if stirred:
            self.waker.stir()
        return result

    def _do(self, work: Callable[[Any], T], commit: Callable[[Any], None]) -> T:
        """Work on a pooled connection; those that died in the pool are replaced before anybody hears of it."""
        for attempt in range(REPLACED + 1):
            fairy = self._checkout()
            connection = fairy.driver_connection
            began = time.monotonic()
            try:
                result = work(connection)
            except BaseException as error:
                lost = self._is_lost(error, connection)
                self._undo(fairy, lost or not isinstance(error, Exception))
                # A dead connection shows it at once; a server that took long to fail would only take as long again.
                # One by one: disposing of the pool would leave those that others have out to be closed by nobody.
                if lost and attempt < REPLACED and time.monotonic() - began < AT_ONCE:
                    continue
                raise self._translated(error) from error
            try:
                commit(connection)
            except BaseException as error:
                fairy.invalidate()
                translated = self._translated(error)
                if isinstance(error, self._driver_error) and not isinstance(translated, Again):
                    translated = self.unavailable(error, OutcomeUnknown)
                raise translated from error
            fairy.close()
            return result
        raise AssertionError("unreachable")

    def _checkout(self) -> Any:
        fairy: Any = None
        try:
            fairy = self.engine.raw_connection()
            self._set_autocommit(fairy.driver_connection)
        except (SQLAlchemyError, self._driver_error, OSError) as error:
            if fairy is not None:
                fairy.invalidate()
            raise self.unavailable(error) from error
        return fairy

    def _undo(self, fairy: Any, discard: bool) -> None:
        if discard:
            fairy.invalidate()
            return
        try:
            self._rollback(fairy.driver_connection)
            fairy.close()
        except Exception:
            fairy.invalidate()

    def _translated(self, error: BaseException) -> BaseException:
        if not isinstance(error, self._driver_error):
            return error
        if self._collided(error):
            again = Again()
            again.__cause__ = error
            return again
        return self.unavailable(error)

    def close(self) -> None:
        """Close all connections."""
        self.waker.close()
        if self.own:
            self.engine.dispose()

    def _is_lost(self, error: BaseException, connection: Any) -> bool:
        return isinstance(error, self._driver_error) and bool(
            self.engine.dialect.is_disconnect(error, connection, None)  # type: ignore[arg-type]
        )

    @property
    @abstractmethod
    def _driver_error(self) -> type[Exception]:
        """The base of the driver's errors."""

    @abstractmethod
    def _tx(self, connection: Any) -> Tx:
        """Return a transaction that is not begun: each statement stands alone."""

    @abstractmethod
    def _begin(self, connection: Any) -> Tx:
        """Begin a transaction."""

    @abstractmethod
    def _commit(self, connection: Any) -> None:
        """Commit it."""

    @abstractmethod
    def _rollback(self, connection: Any) -> None:
        """Undo it."""

    @abstractmethod
    def _set_autocommit(self, connection: Any) -> None:
        """Make sure that a pooled connection begins no transactions of its own."""

    @abstractmethod
    def _collided(self, error: BaseException) -> bool:
        """Tell whether a transaction failed only because another was in its way."""
