"""What the SQL dialects share: opening, the schema, versions, errors."""

from __future__ import annotations

import logging
import random
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from sqlalchemy import MetaData, Table
from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError

from mainspring.core.instants import SECOND
from mainspring.core.redaction import without_password
from mainspring.errors import ConfigurationError, StoreUnavailable
from mainspring.interrupts import sheltered
from mainspring.jobstores.records.rows import JobRow
from mainspring.jobstores.sqlalchemy import meta
from mainspring.jobstores.sqlalchemy.claims import ClaimVerbs
from mainspring.jobstores.sqlalchemy.jobs import JobVerbs
from mainspring.jobstores.sqlalchemy.schema import WORDS, ColumnType, Tables, ddl
from mainspring.jobstores.sqlalchemy.transaction import Statements, Tx
from mainspring.jobstores.sqlalchemy.waking import Waker

__all__ = [
    "ANSWER_TIMEOUT_SECONDS",
    "CREATE_TIMEOUT_SECONDS",
    "STEP_TIMEOUT_SECONDS",
    "Database",
    "StoreTx",
    "UnreadableValue",
]

T = TypeVar("T")

STEP_TIMEOUT_SECONDS: Final = 4.5
"""Seconds that any one step may take: connecting, a statement, waiting for a lock. Less than a third of a lease."""
CREATE_TIMEOUT_SECONDS: Final = 60
"""Seconds that creating the tables may take, and for which a node waits while another creates them."""
ANSWER_TIMEOUT_SECONDS: Final = STEP_TIMEOUT_SECONDS + 0.3
"""Seconds after which this side gives up on a server that does not even say that its own time-out has passed."""
VERSIONS_PER_BLOCK: Final = 1000
"""Versions that a process takes at once."""

CLOCK_LEEWAY_US: Final = 60 * SECOND
"""Microseconds by which the store's clock may get ahead of this process's between two looks."""
CLOCK_DOUBT_SECONDS: Final = 3600.0
"""Seconds for which a jump of the store's clock is no reason to delete anything."""

log = logging.getLogger("mainspring.jobstores.sqlalchemy")


class UnreadableValue(StoreUnavailable):
    """A statement failed over a value that somebody altered."""


class StoreTx(JobVerbs, ClaimVerbs):
    """One transaction of a store. A dialect overrides the hot verbs that it has a quicker statement for."""


class TrustedTime:
    """The store's time as far as deletion by age may rely on it.

    A clock that is ahead makes everything look old, and what is deleted does not come back when it is right again. So a
    jump, also one that happened while no process looked, counts only when it has lasted for an hour.
    """

    def __init__(self) -> None:
        self._known: tuple[int, float] | None = None  # and the monotonic time of it
        self._doubted_at: float | None = None

    def begin(self, known: int | None) -> None:
        """Go on from the last time that anybody has relied on."""
        if known:
            self._known = known, time.monotonic()

    def now(self, now: int) -> int:
        """Return how much of the store's time counts."""
        steady = time.monotonic()
        if self._known is not None:
            expected = self._known[0] + int((steady - self._known[1]) * SECOND)
            if now <= expected + CLOCK_LEEWAY_US:
                self._doubted_at = None
            elif self._doubted_at is None or steady - self._doubted_at < CLOCK_DOUBT_SECONDS:
                self._doubted_at = self._doubted_at or steady
                now = expected
            else:
                self._doubted_at = None
        self._known = now, steady
        return now


class Database(ABC):
    """A database of one dialect, opened in one process."""

    kind: str
    placeholder: str = "?"
    waker: Waker
    words: dict[str, str]
    """What the words in braces mean, besides the names of tables."""

    def __init__(
        self, engine: Engine, tablename: str, metadata: MetaData, schema: str | None, *, own: bool = True
    ) -> None:
        self.engine = engine
        self.own = own  # whether nobody else uses the engine
        self.shift = 0
        self._trusted = TrustedTime()
        self.other_schema: meta.SchemaMismatch | None = None
        """Set once the tables are found to be of another schema: then this release claims and fires nothing."""
        self._tablename, self._metadata, self._schema = tablename, metadata, schema
        self.names: dict[str, str] = {}
        """The quoted name of each table."""
        self.texts = Statements({}, self.placeholder)
        self.columns: dict[str, list[ColumnType]] = {}
        self.mend: Callable[[StoreTx], int] = lambda tx: 0
        """Sets aside what somebody altered; answers how much."""
        self._block: Iterator[int] = iter(())
        self._block_lock = threading.Lock()
        self._highest = 0
        self.count_again_at = 0
        """How many runs must have ended, ever, before those that are kept are counted again."""
        self.forgotten = sys.maxsize
        """Ids of deleted runs that this process has remembered since all of them were last counted."""
        # Each of these rows has few writers, so that counting does not put commits in line.
        self.slot = random.randrange(16)

    # -- opening -----------------------------------------------------------------------------------------------

    @sheltered
    def open(self) -> None:
        """Connect, create the tables if they are not there, and see whether this release may use them."""
        collation = self._prepare()
        tables = Tables(self._tablename, self._metadata, self._schema, self.kind, collation)
        self.names, self.columns = tables.names(self.engine.dialect), tables.kept()
        self.texts = Statements({**self.words, **self.names}, self.placeholder)
        self._locked(partial(self._set_up, tables=tables))
        if self.read(meta.altered):
            self.write(meta.mend)
        self._trusted.begin(self.read(lambda tx: meta.number(tx, "clock")))
        if self.read(lambda tx: self._columns(tx, Table("apscheduler_jobs", MetaData()))):
            log.info(
                "the database also holds APScheduler's table apscheduler_jobs, which is left alone; "
                "`mainspring import` copies its jobs"
            )

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    def is_replaced(self) -> bool:
        """Return True if another database has taken the place of the one that is open."""
        return False

    def abandon(self) -> None:  # noqa: B027
        """Let go of a database in whose place there is another, without touching that."""

    def _prepare(self) -> str | None:
        """Check that the server can be used; return the collation of its text columns, if it needs one."""
        return None

    @abstractmethod
    def _locked(self, work: Callable[[StoreTx], T]) -> T:
        """Do work under a lock that all nodes respect, in a transaction if the tables can be changed in one."""

    def _set_up(self, tx: StoreTx, tables: Tables) -> None:
        """Create the tables, unless they are there; refuse those of somebody else or of another schema."""
        by_word = dict(zip(WORDS, tables.all(), strict=True))
        where = without_password(self.engine.url.render_as_string())
        found = {word: self._columns(tx, by_word[word]) for word in ("meta", "jobs")}
        complete = bool(found["meta"])  # it is made last
        if {"name", "value"} <= found["meta"] and (mismatch := meta.other_schema(tx)):
            raise mismatch
        if not complete:
            found |= {word: self._columns(tx, table) for word, table in by_word.items() if word not in found}
        for word, columns in found.items():
            if columns and not {column.name for column in self.columns[word]} <= columns:
                raise ConfigurationError(
                    f"the table {by_word[word].name!r} in {where} holds data that mainspring did not write; choose "
                    "another tablename" + ", or take the data over with `mainspring import`" * (word == "jobs")
                )
        if not complete:
            self._create(tx, tables)
        elif not found["jobs"]:
            other = f"{tables.prefix}_jobs" if tables.jobs.name == tables.prefix else tables.prefix
            raise ConfigurationError(
                f"the tables {tables.prefix}_* in {where} belong to the store with tablename={other!r}; a store with "
                f"tablename={tables.jobs.name!r} would share them: choose another tablename"
            )

    @abstractmethod
    def _columns(self, tx: StoreTx, table: Table) -> set[str]:
        """Return the names of a table's columns in the database; none if it is not there."""

    def _create(self, tx: StoreTx, tables: Tables) -> None:
        """Create the tables; a node may have died half-way through creating them."""
        for statement in ddl(tables.all(), self.engine.dialect):
            tx.cursor.execute(statement)
        tx.insert("meta", ("name", "value"), meta.first_rows())

    def look_at_schema(self, tx: StoreTx) -> None:
        """Note whether another release has changed the tables."""
        found = meta.other_schema(tx)
        if found is not None and self.other_schema is None:
            log.error("%s", found)
        self.other_schema = found

    def trusted_now(self, tx: Tx) -> int:
        """Return the store's time as far as deletion by age may rely on it."""
        return self._trusted.now(tx.now - self.shift) + self.shift

    # -- work --------------------------------------------------------------------------------------------------

    @abstractmethod
    def read(self, work: Callable[[StoreTx], T]) -> T:
        """Do work that changes nothing."""

    @abstractmethod
    def write(self, work: Callable[[StoreTx], T]) -> T:
        """Do work in one transaction; `work` may be called again and must leave no trace outside of it."""

    @abstractmethod
    def at_once(self, work: Callable[[StoreTx], T]) -> T:
        """Do work that calls `tx.begin` if it needs a transaction: in one round trip if it is one statement."""

    def due(self, limit: int, hold: float) -> tuple[int, list[JobRow], int | None]:
        """Hand out due jobs and hide them: now, the jobs, when the next of the others can be had."""
        return self.at_once(lambda tx: tx.due(limit, hold))

    @sheltered
    def versions(self, count: int) -> list[int]:
        """Return numbers that nobody has been or will be given again."""
        with self._block_lock:
            taken = list(islice(self._block, count))
            if len(taken) < count:
                missing = count - len(taken)
                size = missing + VERSIONS_PER_BLOCK
                # In a transaction of its own: were it undone with another, the numbers would come twice.
                self._highest = end = self.write(lambda tx: meta.take_versions(tx, size, self._highest))
                self._block = iter(range(end - size + 1, end + 1))
                taken += islice(self._block, missing)
            return taken

    # -- errors ------------------------------------------------------------------------------------------------

    def unavailable(self, error: BaseException, kind: type[StoreUnavailable] = StoreUnavailable) -> StoreUnavailable:
        """Make the error to raise for a driver's: what failed where, without the password."""
        said = str(error.__cause__ if isinstance(error, SQLAlchemyError) and error.__cause__ else error)
        url = self.engine.url
        for secret in (url.password, url.query.get("password")):
            said = said.replace(str(secret), "***") if secret else said
        where = without_password(url.render_as_string(hide_password=True))
        said = f"{type(error).__name__}: {' '.join(said.split()) or 'no reason was given'}"
        meaning = self._explain(error)
        return kind(f"{where}: {meaning} ({said})" if meaning else f"{where}: {said}")

    def _explain(self, error: BaseException) -> str:
        """Say what an error means and what to do, empty if its own words have to do."""
        return ""
