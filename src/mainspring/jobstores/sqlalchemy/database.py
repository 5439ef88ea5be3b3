"""What the SQL dialects share: statements written once, opening, the schema, numbers, waking, errors."""

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
from typing import Any, Final, TypeVar

from sqlalchemy import MetaData, Table
from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError

from mainspring.core.instants import SECOND
from mainspring.core.redaction import without_password
from mainspring.errors import ConfigurationError, StoreUnavailable
from mainspring.interrupts import sheltered
from mainspring.jobstores.sqlalchemy import migrations
from mainspring.jobstores.sqlalchemy.schema import WORDS, Kept, Tables
from mainspring.jobstores.sqlalchemy.waking import Waker

__all__ = [
    "ANSWER",
    "MIGRATING",
    "STEP",
    "TIMEOUT",
    "Database",
    "FusedTx",
    "Row",
    "Set",
    "Tx",
    "Unreadable",
    "instant",
    "take_block",
]

T = TypeVar("T")
Row = tuple[Any, ...]
Set = str | tuple[str, str]
"""A column to set, or the column and the expression over its new value `{new}` and its present one `{old}`."""

TIMEOUT: Final = 4.5
"""Seconds that any one step may take: connecting, a statement, waiting for a lock. Less than a third of a lease."""
MIGRATING: Final = 60
"""Seconds for which a node waits while another creates or migrates the tables."""
STEP: Final = 3600
"""Seconds that creating or migrating may take."""
ANSWER: Final = TIMEOUT + 0.3
"""Seconds after which this side gives up on a server that does not even say that its own time-out has passed."""
BLOCK: Final = 1000
"""Versions that a process takes at once."""
MOST_VERSIONS: Final = 2**61
"""A higher version was given by nobody."""

LEEWAY: Final = 60 * SECOND
"""Microseconds by which the store's clock may get ahead of this process's between two looks."""
DOUBT: Final = 3600.0
"""Seconds for which a jump of the store's clock is no reason to delete anything."""

log = logging.getLogger("mainspring.jobstores.sqlalchemy")


class Unreadable(StoreUnavailable):
    """A statement failed over a value that somebody altered."""


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

    def table(self, columns: Sequence[str], rest: str, *params: Any) -> Sequence[Sequence[Any]]:
        """Return what may be many rows: `SELECT columns rest`."""
        return self.all(f"SELECT {', '.join(columns)} {rest}", *params)

    def raw(self, statement: str, *params: Any) -> list[Row]:
        """Return all rows, whatever somebody has put into them."""
        return self.all(statement, *params)

    def undecodable(self, table: str, columns: Sequence[Kept]) -> list[Any]:
        """Return what finds the rows of a table whose text is none."""
        return []

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


class FusedTx(Tx):
    """A dialect in which the hot steps are one statement each."""

    @abstractmethod
    def insert_new(self, columns: Sequence[str], rows: Sequence[Row]) -> set[str]:
        """Insert the runs whose ids, the first column, nobody knows; return those ids."""

    @abstractmethod
    def held(self, columns: str, token: str) -> tuple[int, list[Row]]:
        """Return now, and the runs that are held under a token."""

    @abstractmethod
    def take(
        self, columns: str, lanes: list[str], priority: int, now: int, limit: int, page: int, terms: Row
    ) -> list[Row]:
        """Claim the first due runs of some lanes for (node, token, end of the lease, now); return them in any order.

        At most `page` of each lane. Those that others have locked are passed by.
        """

    @abstractmethod
    def finish(self, columns: Sequence[Set], rows: Sequence[Row]) -> set[str]:
        """Write the end of runs that are held under their tokens, and count them; return their ids.

        Rows are as for `update`, with `token` and `status` among the columns; `expires_at` counts from now.
        """

    @abstractmethod
    def hide(self, columns: str, limit: int, hold: float) -> tuple[int, int | None, list[Row]]:
        """Hide a page of due jobs for `hold` seconds; return now, when the next of the others can be had, the page."""

    @abstractmethod
    def advance(
        self,
        columns: Sequence[str],
        moved: Sequence[Row],
        ended: Sequence[Row],
        run_columns: Sequence[str],
        runs: Sequence[Row],
    ) -> set[str]:
        """Fire: move or delete jobs whose versions are as they were read, insert the new ones of the winners' runs.

        `moved` are as for `update`, the last column being the version that was read; `ended` are ids with that
        version. The last column of a run is the job that fires it; its lease counts from now. Return `jobs:<id>` of
        the winners and `fire:<id>` of the runs inserted.
        """


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
            if now <= expected + LEEWAY:
                self._doubted_at = None
            elif self._doubted_at is None or steady - self._doubted_at < DOUBT:
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
    one_writer: bool = False
    """Whether a transaction that may write keeps all others from writing."""
    fused: bool = False
    """Whether its transactions are `FusedTx`."""
    words: dict[str, str]
    """What the words in braces mean, besides the names of tables."""

    def __init__(
        self, engine: Engine, tablename: str, metadata: MetaData, schema: str | None, *, own: bool = True
    ) -> None:
        self.engine = engine
        self.own = own  # whether nobody else uses the engine
        self.shift = 0
        self._trusted = TrustedTime()
        self.too_new: int | None = None
        self._tablename, self._metadata, self._schema = tablename, metadata, schema
        self._texts: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self.columns: dict[str, list[Kept]] = {}
        self.mend: Callable[[Tx], int] = lambda tx: 0
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
        """Connect, create or migrate the tables, and see whether this release may use them."""
        collation = self._prepare()
        tables = Tables(self._tablename, self._metadata, self._schema, self.kind, collation)
        self._names, self.columns = tables.names(self.engine.dialect), tables.kept()
        self._locked(partial(self._set_up, tables=tables))
        if self.read(migrations.altered):
            self.write(migrations.mend)
        self._upgrade()
        self.read(self.look_at_schema)
        self._trusted.begin(self.read(lambda tx: migrations.number(tx, "clock")))
        if self._has_apscheduler():
            log.info(
                "the database also holds APScheduler's table apscheduler_jobs, which is left alone; "
                "`mainspring import` copies its jobs"
            )

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    def is_replaced(self) -> bool:
        """Tell whether another database has taken the place of the one that is open."""
        return False

    def abandon(self) -> None:  # noqa: B027
        """Let go of a database in whose place there is another, without touching that."""

    @abstractmethod
    def _prepare(self) -> str | None:
        """Check that the server can be used; return the collation of its text columns, if it needs one."""

    @abstractmethod
    def _locked(self, work: Callable[[Tx], T]) -> T:
        """Do work under a lock that all nodes respect, in a transaction if the tables can be changed in one."""

    def _set_up(self, tx: Tx, tables: Tables) -> None:
        """Create the tables, unless they are there; refuse those of somebody else."""
        by_word = dict(zip(WORDS, tables.all(), strict=True))
        where = without_password(self.engine.url.render_as_string())
        found = {word: self._columns(tx, by_word[word]) for word in ("meta", "jobs")}
        complete = bool(found["meta"])  # it is made last
        if not complete:
            found |= {word: self._columns(tx, table) for word, table in by_word.items() if word not in found}
        for word, columns in found.items():
            if columns and not tables.FIRST_COLUMNS[word] <= columns:
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
    def _columns(self, tx: Tx, table: Table) -> set[str]:
        """Return the names of a table's columns in the database; none if it is not there."""

    @abstractmethod
    def _create(self, tx: Tx, tables: Tables) -> None:
        """Create the tables; a node may have died half-way through creating them."""

    @abstractmethod
    def _has_apscheduler(self) -> bool:
        """Tell whether APScheduler's default table is there too."""

    def _upgrade(self) -> None:
        """Take the steps that the store is behind."""
        while (step := self.read(migrations.missing)) is not None:
            if step.stops_older:
                self.write(partial(migrations.stop_older, step=step))
                self._wait_for_older()
            if self._locked(partial(migrations.take, step=step)):
                log.warning("the tables were migrated to schema %d", step.version)

    def _wait_for_older(self) -> None:
        """Wait until every node that is alive has seen what it may no longer do, as it does with each beat."""
        since = self.read(lambda tx: tx.now)
        deadline = time.monotonic() + MIGRATING
        while unheard := self.read(lambda tx: migrations.unheard(tx, since)):
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"the tables cannot be migrated while older nodes work: {', '.join(unheard)}")
            time.sleep(0.1)

    def look_at_schema(self, tx: Tx) -> None:
        """Note whether newer nodes have forbidden this release to work."""
        known = migrations.newest()
        oldest = migrations.oldest_reader(tx) or known
        if oldest > known and self.too_new != oldest:
            log.error("%s", migrations.SchemaTooNew(oldest, known))
        self.too_new = oldest if oldest > known else None

    def trusted_now(self, tx: Tx) -> int:
        """Return the store's time as far as deletion by age may rely on it."""
        return self._trusted.now(tx.now - self.shift) + self.shift

    def check(self) -> None:
        """Raise if this release may no longer claim and fire."""
        if self.too_new is not None:
            raise migrations.SchemaTooNew(self.too_new, migrations.newest())

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

    def write_once(self, statement: Callable[[Tx], T], steps: Callable[[Tx], T]) -> T:
        """Do work that is one statement, atomic by itself; if it collides, or saves nothing here, take the steps."""
        return self.write(steps)

    @sheltered
    def versions(self, count: int) -> list[int]:
        """Return numbers that nobody has been or will be given again."""
        with self._block_lock:
            taken = list(islice(self._block, count))
            if len(taken) < count:
                missing = count - len(taken)
                size = missing + BLOCK
                # In a transaction of its own: were it undone with another, the numbers would come twice.
                self._highest = end = self.write(lambda tx: take_block(tx, size, self._highest))
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
        for secret in (url.password, url.query.get("password")):
            said = said.replace(str(secret), "***") if secret else said
        where = without_password(url.render_as_string(hide_password=True))
        said = f"{type(error).__name__}: {' '.join(said.split()) or 'no reason was given'}"
        meaning = self._explain(error)
        return kind(f"{where}: {meaning} ({said})" if meaning else f"{where}: {said}")

    def _explain(self, error: BaseException) -> str:
        """Say what an error means and what to do, empty if its own words have to do."""
        return ""


def take_block(tx: Tx, size: int, least: int = 0) -> int:
    """Return the last of so many numbers above `least` that nobody has been or will be given again."""
    step = f"UPDATE {{meta}} SET value = value + ? WHERE name = 'versions' AND value BETWEEN ? AND {MOST_VERSIONS}"
    if not tx.run(step, size, least) or migrations.number(tx, "versions") is None:
        migrations.mend(tx, least)
        tx.run(step, size, least)
    end = migrations.number(tx, "versions")
    assert end is not None
    return end


def instant(row: Row | None) -> int | None:
    """Return the time that is a row's only value."""
    if row is None or row[0] is None:
        return None
    if not isinstance(row[0], int):
        raise TypeError(f"{row[0]!r:.100} is no time")
    return row[0]
