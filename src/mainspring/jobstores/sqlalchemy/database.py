"""The base of the SQL dialects: opening, the schema, versions, errors."""

from __future__ import annotations

import logging
import random
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from sqlalchemy import MetaData, Table
from sqlalchemy.exc import SQLAlchemyError

from mainspring.core.instants import SECOND
from mainspring.core.lanes import Want
from mainspring.errors import ConfigurationError, StoreUnavailable
from mainspring.interrupts import sheltered
from mainspring.jobstores.base import Answers
from mainspring.jobstores.records.rows import JobRow, SettleRow
from mainspring.jobstores.sqlalchemy import meta
from mainspring.jobstores.sqlalchemy.connections import Connections
from mainspring.jobstores.sqlalchemy.schema import WORDS, ColumnType, Tables, ddl
from mainspring.jobstores.sqlalchemy.steps.claims import Claimed, ClaimVerbs
from mainspring.jobstores.sqlalchemy.steps.jobs import JobVerbs
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
"""One step (connecting, a statement, waiting for a lock) may take this many seconds: under a third of a lease."""
CREATE_TIMEOUT_SECONDS: Final = 60
"""Creating the tables may take this many seconds; other nodes wait as long."""
ANSWER_TIMEOUT_SECONDS: Final = STEP_TIMEOUT_SECONDS + 0.3
"""Give up after this many seconds on a server that does not even report its own time-out."""
VERSIONS_PER_BLOCK: Final = 1000
"""A process reserves this many versions at once."""

CLOCK_LEEWAY_US: Final = 60 * SECOND
"""Trust the store's clock while it is at most this many microseconds ahead of this process's monotonic clock."""
CLOCK_DOUBT_SECONDS: Final = 3600.0
"""A jump ahead of the store's clock must last for this many seconds before runs are deleted because of it."""

log = logging.getLogger("mainspring.jobstores.sqlalchemy")

_inherited: list[Database] = []  # copies that a fork made: closing their connections here would harm the parent's


class UnreadableValue(StoreUnavailable):
    """A statement failed because of an altered value."""


class StoreTx(JobVerbs, ClaimVerbs):
    """One transaction of a store. A dialect overrides hot verbs for which it has a quicker statement."""


class TrustedTime:
    """The store's time, as far as deletion by age may trust it.

    A clock that is ahead makes every run look old, and correcting the clock does not bring deleted runs back. So a jump
    ahead counts only after it has lasted for an hour, even if it happened while no process was running.
    """

    def __init__(self) -> None:
        self._known: tuple[int, float] | None = None  # the last trusted time, and the monotonic time then
        self._doubted_at: float | None = None

    def begin(self, known: int | None) -> None:
        """Continue from the trusted time that the store has kept, if it has one."""
        if known:
            self._known = known, time.monotonic()

    def now(self, now: int) -> int:
        """Return the store's time `now`, or the expected time while a jump ahead is in doubt."""
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
    ends: Waker
    """Wakes the callers that wait for the end of a run."""
    words: dict[str, str]
    """The SQL for each word in braces, apart from the names of tables."""

    def __init__(self, connections: Connections, tablename: str, metadata: MetaData, schema: str | None) -> None:
        self.connections = connections
        self.shift = 0
        self._trusted = TrustedTime()
        self.other_schema: meta.SchemaMismatch | None = None
        """Set when the tables turn out to have another schema: this release then claims and fires nothing."""
        self._tablename, self._metadata, self._schema = tablename, metadata, schema
        self.names: dict[str, str] = {}
        """The quoted name of each table."""
        self.texts = Statements({}, self.placeholder)
        self.columns: dict[str, list[ColumnType]] = {}
        self.mend: Callable[[StoreTx], int] = lambda tx: 0
        """The work that sets altered records aside and returns their number."""
        self._block: Iterator[int] = iter(())
        self._block_lock = threading.Lock()
        self._highest = 0
        self.count_again_at = 0
        """Count the kept runs again once this many runs have ended since the store was created."""
        self.surplus_before: int | None = None
        """The last count found that finished runs with an `expires_at` below this exceed `keep_runs`."""
        self.forgotten = sys.maxsize
        """How many ids of deleted runs this process has added to `gone` since it last counted all of them."""
        self.limited: set[str] = set()
        """The queues that this process knows to have a limit: when one of their runs ends, another may start."""
        # Spread the processes over several rows of `totals`: each row has few writers, so counting does not serialize
        # commits.
        self.slot = random.randrange(16)

    # -- opening -----------------------------------------------------------------------------------------------

    @sheltered
    def open(self) -> None:
        """Connect, create missing tables, and check that this release may use them."""
        self._locked(partial(self._set_up, tables=self.describe()))
        if self.read(meta.altered):
            self.write(meta.mend)
        self._trusted.begin(self.read(lambda tx: meta.number(tx, "clock")))
        if self.read(lambda tx: self._columns(tx, Table("apscheduler_jobs", MetaData()))):
            log.info(
                "the database also holds APScheduler's table apscheduler_jobs, which is left alone; "
                "`mainspring import` copies its jobs"
            )

    def describe(self) -> Tables:
        """Return the tables; note their names and columns, which statements need."""
        tables = Tables(self._tablename, self._metadata, self._schema, self.kind, self._prepare())
        self.names, self.columns = tables.names(self.connections.dialect), tables.kept()
        self.texts = Statements({**self.words, **self.names}, self.placeholder)
        return tables

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    def leave_to_parent(self) -> None:
        """Give up the connections after a fork: they are the parent's."""
        _inherited.append(self)
        self.connections.leave_to_parent()

    def is_replaced(self) -> bool:
        """Return True if another database has taken the place of the one that is open."""
        return False

    def abandon(self) -> None:  # noqa: B027
        """Give up a database that another has replaced, without touching the new one."""

    def _prepare(self) -> str | None:
        """Check that the server can be used; return the collation of its text columns, if it needs one."""
        return None

    @abstractmethod
    def _locked(self, work: Callable[[StoreTx], T]) -> T:
        """Do work under a lock that all nodes respect, in one transaction if the database can change tables in one."""

    def _set_up(self, tx: StoreTx, tables: Tables) -> None:
        """Create the tables unless they exist; refuse tables of another program or another schema."""
        by_word = dict(zip(WORDS, tables.all(), strict=True))
        where = self.connections.where
        found = {word: self._columns(tx, by_word[word]) for word in ("meta", "jobs")}
        complete = bool(found["meta"])  # it is created last
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
        """Return the names of a table's columns in the database; none if it does not exist."""

    def _create(self, tx: StoreTx, tables: Tables) -> None:
        """Create the missing tables: a node may have died after it created some."""
        for statement in ddl(tables.all(), self.connections.dialect):
            tx.cursor.execute(statement)
        tx.insert("meta", ("name", "value"), meta.first_rows())

    def look_at_schema(self, tx: StoreTx) -> None:
        """Note whether the tables now have another schema; log an error when that is first found."""
        found = meta.other_schema(tx)
        if found is not None and self.other_schema is None:
            log.error("%s", found)
        self.other_schema = found

    def trusted_now(self, tx: Tx) -> int:
        """Return the store's time, as far as deletion by age may trust it."""
        return self._trusted.now(tx.now - self.shift) + self.shift

    # -- work --------------------------------------------------------------------------------------------------

    @abstractmethod
    def read(self, work: Callable[[StoreTx], T]) -> T:
        """Do read-only work."""

    @abstractmethod
    def write(self, work: Callable[[StoreTx], T]) -> T:
        """Do work in one transaction; `work` may be called more than once, so it must have no effect outside of it."""

    @abstractmethod
    def at_once(self, work: Callable[[StoreTx], T]) -> T:
        """Do work that calls `tx.begin` itself if it needs a transaction; a single statement takes one round trip."""

    def settle(self, outcomes: Sequence[SettleRow]) -> Answers[bool]:
        """Write each outcome whose condition holds; return which were written, and which runs were refused."""
        return self.at_once(lambda tx: Answers(tx.settle(outcomes), tx.refused))

    def claim(self, wants: Sequence[Want], node: str, token: str, lease: float) -> Claimed:
        """Claim due runs; a dialect may return before the claim is on the disk, see `keep_claim`."""
        return self.at_once(lambda tx: tx.claim(wants, node, token, lease))

    def keep_claim(self, token: str) -> None:  # noqa: B027
        """Wait until a claim is on the disk, if `claim` does not wait for that."""

    def due(self, limit: int, hold: float) -> tuple[int, list[JobRow], int | None]:
        """Return now, the due jobs, and when another job may be due; hide the returned jobs for `hold` seconds."""
        return self.at_once(lambda tx: tx.due(limit, hold))

    @sheltered
    def versions(self, count: int) -> list[int]:
        """Return `count` version numbers that no caller in any process gets again."""
        with self._block_lock:
            taken = list(islice(self._block, count))
            if len(taken) < count:
                missing = count - len(taken)
                size = missing + VERSIONS_PER_BLOCK
                # Reserve them in a separate transaction: a rollback of the caller's would give them out twice.
                self._highest = end = self.write(lambda tx: meta.take_versions(tx, size, self._highest))
                self._block = iter(range(end - size + 1, end + 1))
                taken += islice(self._block, missing)
            return taken

    # -- errors ------------------------------------------------------------------------------------------------

    def unavailable(self, error: BaseException, kind: type[StoreUnavailable] = StoreUnavailable) -> StoreUnavailable:
        """Return the error to raise for a driver's error: what failed and where, without the password."""
        said = str(error.__cause__ if isinstance(error, SQLAlchemyError) and error.__cause__ else error)
        for secret in self.connections.secrets:
            said = said.replace(secret, "***")
        where = self.connections.where
        said = f"{type(error).__name__}: {' '.join(said.split()) or 'no reason was given'}"
        meaning = self._explain(error)
        return kind(f"{where}: {meaning} ({said})" if meaning else f"{where}: {said}")

    def _explain(self, error: BaseException) -> str:
        """Return what an error means and what to do; empty if there is nothing to add to its own message."""
        return ""
