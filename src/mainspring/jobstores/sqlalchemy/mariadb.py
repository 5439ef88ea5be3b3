"""MariaDB 10.6+ and MySQL 8 with PyMySQL: lock rows, then write them by id; poll a counter to notice changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, TypeVar

# Import by name: pymysql.install_as_MySQLdb(), which Django projects call, puts a second copy of the module at
# pymysql.err.
from pymysql.err import MySQLError, OperationalError
from sqlalchemy import MetaData, Table
from sqlalchemy.schema import CreateIndex

from mainspring.errors import ConfigurationError
from mainspring.jobstores.records.rows import RunRow
from mainspring.jobstores.sqlalchemy.database import (
    ANSWER_TIMEOUT_SECONDS,
    CREATE_TIMEOUT_SECONDS,
    STEP_TIMEOUT_SECONDS,
    StoreTx,
)
from mainspring.jobstores.sqlalchemy.meta import first_rows
from mainspring.jobstores.sqlalchemy.schema import Tables, ddl
from mainspring.jobstores.sqlalchemy.server import IDLE_TRANSACTION_SECONDS, ServerDatabase
from mainspring.jobstores.sqlalchemy.steps.claims import FEW_LANES, Level
from mainspring.jobstores.sqlalchemy.steps.runs import CLAIMED, Terms, claimed_row
from mainspring.jobstores.sqlalchemy.transaction import Row, Set
from mainspring.jobstores.sqlalchemy.waiting.judging import LOCKED_COLUMNS
from mainspring.jobstores.sqlalchemy.waking import AWAITED, AwaitedMark, Waker

__all__ = ["CONNECT_ARGS", "MariaDBDatabase"]

T = TypeVar("T")

CONNECT_ARGS: Final = {
    "connect_timeout": int(STEP_TIMEOUT_SECONDS),
    "read_timeout": ANSWER_TIMEOUT_SECONDS,
    "write_timeout": STEP_TIMEOUT_SECONDS,
    "charset": "utf8mb4",
    # MySQL has no idle_transaction_timeout, and reads that part as a comment.
    "init_command": f"SET SESSION innodb_lock_wait_timeout = {int(STEP_TIMEOUT_SECONDS)}"
    f" /*M!, SESSION idle_transaction_timeout = {IDLE_TRANSACTION_SECONDS} */",
}
STATEMENT_BYTES: Final = 4_000_000
"""Split statements that write many rows at this many bytes, or earlier if the server takes fewer."""
_TOO_LARGE: Final = 1153
LANES_PER_STATEMENT: Final = 100
"""One statement asks for this many lanes."""
FIRST_END_LOOK_SECONDS: Final = 0.005
LONGEST_END_LOOK_SECONDS: Final = 0.1
"""The server sends no messages, so a process that waits for an end polls a counter: first soon, then this often."""

_RETRIED: Final = frozenset({1213, 1062, 1020})  # deadlock, a key taken meanwhile, a row changed since it was read
_WAITING: Final = {
    False: "{runs} WHERE status = 'pending' AND at_gate IS NULL",
    True: "{runs} WHERE status = 'pending' AND at_gate IS NOT NULL",
}
_PLACE: Final = ("id", "run_at", "lane")
_NOW: Final = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"


class MariaDBTx(StoreTx):
    """A transaction on a pooled connection."""

    database: MariaDBDatabase
    locked_columns = (*LOCKED_COLUMNS, AWAITED)

    @staticmethod
    def many(values: list[Any], /) -> Any:
        return tuple(values)

    def begin(self) -> None:
        self.begun = True
        self.cursor.execute("START TRANSACTION")

    def insert(self, table: str, columns: tuple[str, ...], rows: Sequence[Row]) -> None:
        head = f"INSERT INTO {self.database.names[table]} ({', '.join(columns)}) VALUES "
        for chunk in _chunks(rows, self.database.packet):
            marks = ", ".join(f"({', '.join(map(_mark, row))})" for row in chunk)
            self._execute(head + marks, [value for row in chunk for value in row])

    def update(self, table: str, columns: tuple[Set, ...], rows: Sequence[Row]) -> None:
        names, sets = ["id"], []
        for column in columns:
            name, value = (column, "{new}") if isinstance(column, str) else column
            names.append(name)
            sets.append(f"old.{name} = {value.format(new=f'new.{name}', old=f'old.{name}')}")
        for chunk in _chunks(rows, self.database.packet):
            marks = [list(map(_mark, row)) for row in chunk]
            marks[0] = [f"{mark} AS {name}" for mark, name in zip(marks[0], names, strict=True)]
            values = " UNION ALL ".join(f"SELECT {', '.join(row)}" for row in marks)
            # STRAIGHT_JOIN finds the old row of each new one by key, and never scans the table.
            statement = (
                f"UPDATE ({values}) AS new STRAIGHT_JOIN {self.database.names[table]} AS old"
                f" ON old.id = new.id SET {', '.join(sets)}"
            )
            self._execute(statement, [value for row in chunk for value in row])

    def run(self, statement: str, *params: Any) -> int:
        return self._execute(self.texts[statement], params)

    def _execute(self, statement: str, params: Sequence[Any]) -> int:
        """Execute a statement; raise ValueError if it is too large, since the server would close the connection."""
        most = self.database.packet
        if _size(params) > most:
            size = len(self.cursor.mogrify(statement, params).encode("utf-8", "surrogateescape"))
            if size > most:
                raise ValueError(f"{size} bytes are too many for the server: its max_allowed_packet permits {most}")
        self.cursor.execute(statement, params)
        return int(self.cursor.rowcount)

    def _read_clock(self) -> int:
        self.cursor.execute(_NOW)
        now: int = self.cursor.fetchone()[0]
        return now

    def all(self, statement: str, *params: Any) -> list[Row]:
        return list(super().all(statement, *params))

    # A recursive query would read all waiting runs to find the next level, so find the levels step by step.

    def levels(self, lanes: list[str], gated: bool = False) -> list[Any]:
        wanted = set(lanes)
        if len(lanes) > LANES_PER_STATEMENT:
            wanted &= {name for (name,) in self.all(f"SELECT DISTINCT lane FROM {_WAITING[gated]}")}
        above = dict.fromkeys(sorted(wanted), 2**31)
        found: list[Level] = []
        highest = f"(SELECT max(priority) FROM {_WAITING[gated]} AND lane = ? AND priority < ?)"
        while above:
            levels = self._of_each(highest, list(above.items()))
            above = {lane: priority for lane, priority in zip(above, levels, strict=True) if priority is not None}
            found += above.items()
        first = f"(SELECT min(run_at) FROM {_WAITING[gated]} AND lane = ? AND priority = ?)"
        firsts = self._of_each(first, found)
        return [(*level, run_at) for level, run_at in zip(found, firsts, strict=True) if run_at is not None]

    def next_of(self, levels: list[Level], after: int, gated: bool = False) -> list[int]:
        first = f"SELECT run_at FROM {_WAITING[gated]} AND lane = ? AND priority = ? AND run_at > ?"
        times = self._of_each(f"({first} ORDER BY run_at LIMIT 1)", [(*level, after) for level in levels])
        return [run_at for run_at in times if run_at is not None]

    def lock_due(self, lanes: list[str], priority: int, room: int, terms: Terms) -> list[RunRow]:
        if len(lanes) > FEW_LANES:
            # No row can be locked inside a union: find the runs of many lanes first, then lock them.
            now = terms.now
            ids = sorted(row[0] for row in self.best_due(_PLACE, lanes, priority, room, now))
            rest = f"FROM {_WAITING[False]} AND priority = ? AND run_at <= ? AND id {{in}} ORDER BY run_at, id {{skip}}"
            rows = self.table(CLAIMED, rest, priority, now, self.many(ids)) if ids else []
            if len(rows) == len(ids):
                return [claimed_row(row, terms) for row in rows]
        return super().lock_due(lanes, priority, room, terms)  # lane by lane, skipping runs that others have locked

    def first_due(
        self, columns: tuple[str, ...], lanes: list[str], priority: int, now: int, page: int
    ) -> dict[str, Sequence[Sequence[Any]]]:
        if columns is not _PLACE:
            return super().first_due(columns, lanes, priority, now, page)
        one = f"(SELECT {', '.join(_PLACE)} FROM {_WAITING[False]} AND lane = ? AND priority = ? AND run_at <= ?"
        found: dict[str, list[Row]] = {lane: [] for lane in lanes}
        for row in self._union(f"{one} ORDER BY run_at LIMIT ?)", [(lane, priority, now, page) for lane in lanes]):
            found[row[_PLACE.index("lane")]].append(row)
        return found  # type: ignore[return-value]

    def parked_lanes(self, gates: Sequence[str]) -> list[tuple[str, str]]:
        parked = "SELECT DISTINCT at_gate, lane FROM {runs} WHERE status = 'blocked' AND at_gate {in}"
        return [(gate, lane) for gate, lane in self.all(parked, self.many(list(gates)))]

    def parked(self, wanted: Sequence[tuple[str, str, int]]) -> list[str]:
        one = (
            "(SELECT id FROM {runs} WHERE status = 'blocked' AND at_gate = ? AND lane = ?"
            " ORDER BY priority DESC, run_at LIMIT ?)"
        )
        ids = [run_id for (run_id,) in self._union(one, wanted)]
        if not ids:
            return []
        # No row can be locked inside a union.
        locked = "SELECT id FROM {runs} WHERE id {in} AND status = 'blocked' AND at_gate IS NOT NULL ORDER BY id {lock}"
        return [run_id for (run_id,) in self.all(locked, self.many(sorted(ids)))]

    def _union(self, statement: str, params: Sequence[Row]) -> list[Row]:
        """Return the rows of a statement for all sets of parameters."""
        rows: list[Row] = []
        for start in range(0, len(params), LANES_PER_STATEMENT):
            some = params[start : start + LANES_PER_STATEMENT]
            rows += self.all(" UNION ALL ".join([statement] * len(some)), *chain.from_iterable(some))
        return rows

    def _of_each(self, expression: str, params: Sequence[Row]) -> list[Any]:
        """Return the value of an expression for each set of parameters."""
        values: list[Any] = []
        for start in range(0, len(params), LANES_PER_STATEMENT):
            some = params[start : start + LANES_PER_STATEMENT]
            values += self.all(f"SELECT {', '.join([expression] * len(some))}", *chain.from_iterable(some))[0]
        return values


def _mark(value: Any) -> str:
    """Return the placeholder of a value; without `_binary`, the server would read the driver's bytes as text."""
    return "_binary %s" if isinstance(value, bytes) else "%s"


def _size(values: Iterable[Any]) -> int:
    """Return the most bytes that values can take in a statement: each byte may need an escape."""
    return 200 + sum(2 * len(value) for value in values if isinstance(value, bytes | str))


def _chunks(rows: Sequence[Row], most: int) -> Iterator[Sequence[Row]]:
    """Divide rows into statements that the server takes."""
    most, start, size = min(STATEMENT_BYTES, most), 0, 0
    for index, row in enumerate(rows):
        length = _size(row)
        if index > start and size + length > most:
            yield rows[start:index]
            start, size = index, 0
        size += length
    if start < len(rows):
        yield rows[start:]


class MariaDBDatabase(ServerDatabase):
    """A MariaDB or MySQL database."""

    kind = "mysql"
    placeholder = "%s"
    words: Final = {  # type: ignore[misc]
        "in": "IN ?",
        "lock": "FOR UPDATE",
        "skip": "FOR UPDATE SKIP LOCKED",
        "param": "?",
    }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.waker, self.ends = CounterWaker(self), EndCounterWaker(self)
        self._collation = ""
        self.packet = STATEMENT_BYTES
        """The server takes statements of up to this many bytes."""

    @property
    def _driver_error(self) -> type[Exception]:
        return MySQLError  # type: ignore[no-any-return]

    def _prepare(self) -> str | None:
        [(version, packet)] = self.read(lambda tx: tx.all("SELECT VERSION(), @@max_allowed_packet"))
        self.packet = int(packet) - 64  # the packet holds more than the statement
        mariadb = "mariadb" in version.lower()
        number = tuple(int(part) for part in version.split("-")[0].split(".")[:2])
        if number < ((10, 6) if mariadb else (8, 0)):
            raise ConfigurationError(f"the server is version {version}; mainspring needs MariaDB 10.6 or MySQL 8.0")
        # Two texts are equal if their bytes are: no folding of case, no padding with spaces.
        self._collation = "utf8mb4_nopad_bin" if mariadb else "utf8mb4_0900_bin"
        return self._collation

    def _locked(self, work: Callable[[StoreTx], T]) -> T:
        name = f"mainspring:{self.names['meta']}"[:64]

        def attempt(tx: StoreTx) -> T:
            if not any(tx.one("SELECT GET_LOCK(?, 4)", name) == (1,) for _ in range(CREATE_TIMEOUT_SECONDS // 4)):
                raise OperationalError(
                    1205, f"another node has been creating the tables for {CREATE_TIMEOUT_SECONDS} s"
                )
            connection = tx.cursor.connection
            patience, connection._read_timeout = connection._read_timeout, CREATE_TIMEOUT_SECONDS
            try:
                return work(tx)
            finally:
                connection._read_timeout = patience
                tx.one("SELECT RELEASE_LOCK(?)", name)

        return self.read(attempt)  # statement by statement: MariaDB cannot change tables inside a transaction

    def _columns(self, tx: StoreTx, table: Table) -> set[str]:
        found = (
            "SELECT column_name FROM information_schema.columns"
            " WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?"
        )
        return {name for (name,) in tx.all(found, table.schema, table.name)}

    def _create(self, tx: StoreTx, tables: Tables) -> None:
        found = (
            "SELECT index_name FROM information_schema.statistics"
            " WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?"
        )
        for table in tables.all()[:-1]:
            tx.cursor.execute(*ddl([table], self.connections.dialect, indexes=False))
            known = {name for (name,) in tx.all(found, table.schema, table.name)}
            for index in sorted(table.indexes, key=lambda one: str(one.name)):
                if index.name not in known:  # a node may have died before it created all
                    tx.cursor.execute(str(CreateIndex(index).compile(dialect=self.connections.dialect)))
        # This table says that the others are complete, so it must appear already filled.
        draft = tables.meta.to_metadata(MetaData(), name=f"{tables.meta.name}_new")
        [made] = ddl([draft], self.connections.dialect)
        quoted = self.connections.dialect.identifier_preparer.format_table(draft)
        tx.cursor.execute(f"DROP TABLE IF EXISTS {quoted}")
        tx.cursor.execute(made)
        tx.cursor.executemany(f"INSERT INTO {quoted} (name, value) VALUES (%s, %s)", first_rows())
        tx.cursor.execute(f"RENAME TABLE {quoted} TO {self.names['meta']}")

    def _tx(self, connection: Any) -> StoreTx:
        return MariaDBTx(self, connection.cursor())

    def _commit(self, connection: Any) -> None:
        connection.commit()

    def _rollback(self, connection: Any) -> None:
        connection.rollback()

    def _set_autocommit(self, connection: Any) -> None:
        if not connection.get_autocommit():
            connection.autocommit(True)
        # Remember it on the connection itself: the pool may belong to the user.
        if self._collation and getattr(connection, "_mainspring", None) != self._collation:
            with connection.cursor() as cursor:
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
                cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {int(STEP_TIMEOUT_SECONDS)}")
                cursor.execute("SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_TRANS_TABLES')")
                cursor.execute(f"SET NAMES utf8mb4 COLLATE {self._collation}")
            connection._mainspring = self._collation

    def _fileno(self, connection: Any) -> int | None:
        return int(connection._sock.fileno()) if connection.open else None

    def _is_value(self, error: BaseException) -> bool:
        return super()._is_value(error) or (bool(error.args) and error.args[0] == _TOO_LARGE)

    def _collided(self, error: BaseException) -> bool:
        return bool(error.args) and error.args[0] in _RETRIED


class CounterWaker(Waker):
    """A waker that counts changes in a row of `meta`, at most 20 times a second, and polls it twice a second."""

    pause = 0.05
    look_every = 0.5
    name = "stirs"

    def __init__(self, database: MariaDBDatabase) -> None:
        super().__init__()
        self._database = database
        self._seen: int | None = None

    def prepare(self) -> None:
        if self._seen is None:
            self._seen = self._count()
            self.move()

    def look(self) -> int:
        before, self._seen = self._seen or 0, self._count()
        return self._seen - before

    def tell(self, step: int) -> None:
        self._database.read(lambda tx: tx.run("UPDATE {meta} SET value = value + ? WHERE name = ?", step, self.name))

    def _count(self) -> int:
        row = self._database.read(lambda tx: tx.one("SELECT value FROM {meta} WHERE name = ?", self.name))
        return 0 if row is None else int(row[0])


class EndCounterWaker(CounterWaker):
    """A waker that counts ends of runs while a caller waits for one, and polls soon at first, then less often."""

    pause = 0.01
    name = "ends"

    def __init__(self, database: MariaDBDatabase) -> None:
        super().__init__(database)
        self._mark = AwaitedMark(database)

    def prepare(self) -> None:
        if self._mark.renew():
            self.move()
        super().prepare()
        self.look_every = FIRST_END_LOOK_SECONDS

    def look(self) -> int:
        self.look_every = min(LONGEST_END_LOOK_SECONDS, self.look_every * 1.5)
        return super().look()
