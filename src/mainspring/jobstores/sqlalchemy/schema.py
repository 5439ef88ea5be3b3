"""The tables of the SQL store: one description for every dialect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, Table, Text, text
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.types import TypeEngine

from mainspring.core.stored.edges import MOST_EDGES
from mainspring.jobstores.records.rows import (
    EARLIEST_INSTANT,
    LATEST_INSTANT,
    MOST_ATTEMPTS,
    STATUS_VALUES,
)

__all__ = ["NEVER", "ColumnType", "Tables", "ddl", "odd"]

NEVER: Final = 2**62
"""The `expires_at` of a finished run that is never pruned. An unfinished run has NULL there."""

ENDED_BADLY: Final = ("failed", "cancelled", "missed", "broken")
"""The final statuses that people look for; few runs have them, so an index on them is small."""
HAS_ENDED_BADLY: Final = f"({' OR '.join(f'status = {status!r}' for status in ENDED_BADLY)})"
"""The condition of that index. It has no IN: SQLite would build a table of the list with every write of a run."""

ID_LENGTH: Final = 255
LANE_LENGTH: Final = ID_LENGTH + 8  # a queue and the word for the kind of executor
RUN_ID_LENGTH: Final = 320  # a job's id, its incarnation, a time and ":missed"

WORDS: Final = (
    "jobs", "runs", "edges", "limits", "broken", "gone", "queues", "nodes", "totals", "acts", "tallies", "meta",
)  # fmt: skip
"""The names of the tables in statements."""
_INSTANT: Final = f"NOT BETWEEN {EARLIEST_INSTANT} AND {LATEST_INSTANT}"
_ODD: Final = {
    "runs": (
        f"({' AND '.join(f'status <> {value!r}' for value in STATUS_VALUES)})",
        *(f"{name} {_INSTANT}" for name in ("created_at", "run_at", "finished_at", "claimed_at")),
        f"attempt NOT BETWEEN 0 AND {MOST_ATTEMPTS}",
        *(f"{name} NOT BETWEEN 0 AND {MOST_EDGES}" for name in ("waits", "followed")),
        "at_gate IS NOT NULL AND (gate IS NULL OR gate <> at_gate)",
        "lane <> queue AND replace(replace(lane, ':async', ''), ':process', '') <> queue",
        "status = 'blocked' AND waits = 0 AND at_gate IS NULL",
    ),
    "jobs": (f"at {_INSTANT}", f"nominal {_INSTANT}"),
}


class ColumnType(NamedTuple):
    """A column; its kind is number, text or bytes."""

    name: str
    kind: str
    null: bool
    key: bool


def odd(table: str) -> str:
    """Return the condition that finds rows with values that no store writes; empty if there is none.

    Every write of a row evaluates this condition. So it calls no function for a usual row, and compares statuses one by
    one: SQLite would build a table of a longer list each time.
    """
    terms = _ODD.get(table, ())
    return " OR ".join(terms) and f"({' OR '.join(terms)})"


class Tables:
    """The tables of one store: `<prefix>_jobs`, `<prefix>_runs` and the small ones beside them."""

    def __init__(
        self, tablename: str, metadata: MetaData, schema: str | None, kind: str, collation: str | None
    ) -> None:
        self.prefix = tablename.removesuffix("_jobs")
        self.kind = kind
        self._metadata = metadata
        self._schema = schema
        self._collation = collation
        self.jobs = self._jobs(tablename)
        self.runs = self._runs()
        self.edges = self._edges()
        self.limits = self._table("limits", self._id("id"), Column("allowed", Integer), _number("tat"), _number("line"))
        self.broken = self._broken()
        self.gone = self._gone()
        self.queues = self._table("queues", self._id("name"), _count("allowed"))
        self.nodes = self._table("nodes", self._id("id"), self._bytes("info"), _number("expires_at"))
        self.totals = self._table(
            "totals", self._id("status", 20), Column("slot", Integer, primary_key=True), _number("n")
        )
        self.acts = self._acts()
        self.tallies = self._table("tallies", self._id("id", 300), self._bytes("cells"))
        self.meta = self._table("meta", self._id("name", 20), _number("value"))

    def all(self) -> list[Table]:
        """Return the tables in the order of creation; `meta`, which shows that the others are complete, is last."""
        return [
            self.jobs,
            self.runs,
            self.edges,
            self.limits,
            self.broken,
            self.gone,
            self.queues,
            self.nodes,
            self.totals,
            self.acts,
            self.tallies,
            self.meta,
        ]

    def kept(self) -> dict[str, list[ColumnType]]:
        """Return the column types of each table by its name in statements."""
        return {word: _kept(table) for word, table in zip(WORDS, self.all(), strict=True)}

    def names(self, dialect: Dialect) -> dict[str, str]:
        """Return the quoted name of each table."""
        quote = dialect.identifier_preparer.format_table
        return dict(zip(WORDS, map(quote, self.all()), strict=True))

    def _jobs(self, name: str) -> Table:
        table = self._make(
            name,
            self._id("id"),
            _number("at", null=True),
            _number("nominal", null=True),
            # The time from which `due` may return the job: `at`, or the end of its hold.
            _number("due_at", null=True),
            self._bytes("frame"),
            _number("version"),
            _number("incarnation"),
            Column("miss", Text),
        )
        self._index(table, "due", "due_at", where="due_at IS NOT NULL")
        self._odd_index(table, "jobs")
        return table

    def _runs(self) -> Table:
        table = self._table(
            "runs",
            self._id("id", RUN_ID_LENGTH),
            self._bytes("payload"),
            self._bytes("state"),
            self._bytes("live", null=True),
            self._text("owner", RUN_ID_LENGTH),
            self._text("job_id"),
            self._text("queue", null=False),
            # The part of the queue for one kind of executor; only claims and parking use it.
            self._text("lane", LANE_LENGTH, null=False),
            self._text("status", 10, null=False),
            Column("priority", Integer, nullable=False),
            _number("run_at"),
            _number("created_at"),
            _number("finished_at", null=True),
            _number("keep"),
            self._text("token"),
            self._text("node"),
            _number("lease_until", null=True),
            _number("claimed_at", null=True),
            Column("attempt", Integer, nullable=False),
            Column("cancelling", Integer, nullable=False),
            self._text("unique_key"),
            self._text("group_id"),
            # For people who search the table; no statement of the store reads them.
            self._text("task"),
            self._text("label"),
            _number("expires_at", null=True),
            # The number of its unfinished predecessors, and the number of its successors.
            _count("waits"),
            _count("followed"),
            self._text("refused", RUN_ID_LENGTH),
            self._text("gate"),
            self._text("gate_spec", 100),
            # The gate at which the run waits or holds a slot. It is NULL if the run has no gate (most have none), waits
            # for other runs, was refused, or has ended.
            self._text("at_gate"),
        )
        if self.kind == "mysql":  # no partial indexes
            self._index(table, "claim", "status", "at_gate", "lane", "priority", "run_at")
            self._index(table, "held", "token")
            self._index(table, "open", "owner", "expires_at")
            self._index(table, "by_gate", "gate")
        else:
            due = ("lane", "priority", "run_at")
            self._index(table, "claim", *due, where="status = 'pending' AND at_gate IS NULL")
            self._index(table, "gated", *due, where="status = 'pending' AND at_gate IS NOT NULL")
            self._index(table, "slots", "at_gate", "status", where="at_gate IS NOT NULL")
            self._index(table, "by_gate", "gate", where="gate IS NOT NULL AND expires_at IS NULL")
            # A parked run carries its age as `run_at`.
            self._index(table, "blocked", "at_gate", "lane", "priority", "run_at", where="status = 'blocked'")
            # The lease has no index: it changes with every heartbeat, and few runs are running.
            self._index(table, "held", "token", "queue", where="status = 'running'")
            self._index(table, "open", "owner", where="owner IS NOT NULL AND expires_at IS NULL")
        self._index(table, "ended", "expires_at", where="expires_at IS NOT NULL")
        # Leave out the id: PostgreSQL writes this index with every claim and end, and sorting equal times is quick.
        self._index(table, "newest", "created_at")
        if self.kind != "mysql":  # in MySQL, the index `claim` begins with the status
            self._index(table, "bad", "status", "created_at", where=HAS_ENDED_BADLY)
        self._index(table, "by_job", "job_id", "created_at", where="job_id IS NOT NULL")
        self._index(table, "by_group", "group_id", "created_at", where="group_id IS NOT NULL")
        self._index(table, "unique", "unique_key", where="unique_key IS NOT NULL", unique=True)
        self._odd_index(table, "runs")
        return table

    def _edges(self) -> Table:
        """Return the table of edges between runs; a mask says which ends of `pred` let `succ` start."""
        pred, succ = self._id("pred", RUN_ID_LENGTH), self._id("succ", RUN_ID_LENGTH)
        table = self._table("edges", pred, succ, Column("mask", Integer, nullable=False))
        self._index(table, "succ", "succ")
        return table

    def _broken(self) -> Table:
        return self._table(
            "broken",
            _number("incarnation", key=True),
            self._text("id", null=False),
            Column("reason", Text, nullable=False),
            _number("broken_at"),
            _number("at", null=True),
            _number("nominal", null=True),
            self._bytes("frame"),
            Column("miss", Text),
        )

    def _gone(self) -> Table:
        table = self._table("gone", self._id("id", RUN_ID_LENGTH), _number("expires_at"))
        self._index(table, "ended", "expires_at")
        return table

    def _acts(self) -> Table:
        """Return the table of what people did; the ids sort by time."""
        about = self._text("about", RUN_ID_LENGTH + 10, null=False)
        table = self._table("acts", self._id("id", 40), about, self._bytes("frame"))
        self._index(table, "about", "about", "id")
        return table

    # -- columns -----------------------------------------------------------------------------------------------

    def _table(self, word: str, *columns: Column[Any]) -> Table:
        return self._make(f"{self.prefix}_{word}", *columns)

    def _make(self, name: str, *columns: Column[Any]) -> Table:
        known = self._metadata.tables.get(f"{self._schema}.{name}" if self._schema else name)
        if known is not None:
            return known
        # With free room in each page, PostgreSQL writes a changed row beside the old one; a heartbeat touches no index.
        room: dict[str, Any] = {"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.05}
        options: dict[str, Any] = {"postgresql_with": room} if name.endswith(("_jobs", "_runs")) else {}
        # Without this, SQLite accepts a value of any type in any column.
        options["sqlite_strict"] = True
        if self.kind == "mysql":
            options = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_row_format": "DYNAMIC"}
        return Table(name, self._metadata, *columns, schema=self._schema, **options)

    def _string(self, length: int) -> TypeEngine[Any]:
        if self.kind == "mysql":
            return mysql.VARCHAR(length, charset="utf8mb4", collation=self._collation)
        # Compare and sort by plain bytes, as Python does.
        return Text(collation="C") if self.kind == "postgresql" else Text()

    def _id(self, name: str, length: int = ID_LENGTH) -> Column[Any]:
        return Column(name, self._string(length), primary_key=True)

    def _text(self, name: str, length: int = ID_LENGTH, *, null: bool = True) -> Column[Any]:
        return Column(name, self._string(length), nullable=null)

    def _bytes(self, name: str, *, null: bool = False) -> Column[Any]:
        kind = mysql.MEDIUMBLOB() if self.kind == "mysql" else LargeBinary()
        return Column(name, kind, nullable=null)

    def _odd_index(self, table: Table, word: str) -> None:
        """Index the altered rows. Usually there are none, so the sweep sees that at once."""
        if self.kind != "mysql":
            self._index(table, "odd", "id", where=odd(word))

    def _index(self, table: Table, word: str, *columns: str, where: str | None = None, unique: bool = False) -> None:
        name = f"{table.name}_{word}"
        if any(index.name == name for index in table.indexes):
            return
        condition = None if where is None else text(where.replace(":", "\\:"))  # no parameters
        Index(
            name,
            *(table.c[column] for column in columns),
            unique=unique,
            sqlite_where=condition,
            postgresql_where=condition,
        )


def _kept(table: Table) -> list[ColumnType]:
    def kind(column: Column[Any]) -> str:
        if isinstance(column.type, LargeBinary | mysql.MEDIUMBLOB):
            return "bytes"
        return "number" if isinstance(column.type, Integer) else "text"

    return [ColumnType(each.name, kind(each), bool(each.nullable), each.primary_key) for each in table.columns]


def _number(name: str, *, null: bool = False, key: bool = False) -> Column[Any]:
    kind = BigInteger().with_variant(Integer(), "sqlite")  # a strict table knows only this name
    return Column(name, kind, nullable=null, primary_key=key, autoincrement=False)


def _count(name: str) -> Column[Any]:
    """Return a column that is 0 unless an insert says otherwise: most runs have no edge and no gate."""
    return Column(name, Integer, nullable=False, server_default=text("0"))


def ddl(tables: Iterable[Table], dialect: Dialect, *, indexes: bool = True) -> list[str]:
    """Return the statements that create missing tables and indexes."""
    statements = []
    for table in tables:
        statements.append(str(CreateTable(table, if_not_exists=True).compile(dialect=dialect)))
        for index in sorted(table.indexes, key=lambda one: str(one.name)) if indexes else ():
            statements.append(str(CreateIndex(index, if_not_exists=True).compile(dialect=dialect)))
    return statements
