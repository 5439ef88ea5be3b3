"""The tracker's view of a user's mapped class: its columns, its primary key, its statements."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar, cast

from sqlalchemy import (
    Select,
    String,
    Update,
    and_,
    bindparam,
    case,
    inspect,
    literal,
    not_,
    null,
    or_,
    select,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.engine import CursorResult
from sqlalchemy.orm import Mapper, Session
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.selectable import Subquery

from mainspring.errors import ConfigurationError
from mainspring.tracker.clock import now_for
from mainspring.tracker.failure import lost_records
from mainspring.tracker.rules import Rules

__all__ = ["CLAIM_CANDIDATES", "REQUIRED_COLUMNS", "Table"]

J = TypeVar("J")

REQUIRED_COLUMNS: Final = ("status", "create_at", "update_at", "lock", "lock_at", "retry", "data", "errors")
CLAIM_CANDIDATES: Final = 16
"""The number of oldest jobs per status that a claim chooses from, so that as many workers can claim at once."""
STATEMENTS_KEPT: Final = 64
"""The number of compiled statements to keep for a table."""


class Table(Generic[J]):
    """The table behind a mapped class."""

    def __init__(self, job_class: type[J]) -> None:
        self.job_class = job_class
        mapper = inspect(job_class, raiseerr=False)
        if not isinstance(mapper, Mapper):
            raise TypeError(
                f"{getattr(job_class, '__name__', job_class)!r} is not a mapped class; "
                "declare `class Job(Base, JobMixin)` with a __tablename__, and use that"
            )
        columns = {attribute.key: attribute for attribute in mapper.column_attrs}
        missing = [name for name in REQUIRED_COLUMNS if name not in columns]
        if missing:
            raise ConfigurationError(f"{job_class.__name__} lacks the column {', '.join(missing)} of JobMixin")
        self.key: tuple[str, ...] = tuple(mapper.get_property_by_column(column).key for column in mapper.primary_key)
        self.columns: Mapping[str, bool] = {name: name in self.key for name in columns}
        self.backs_off = "retry_at" in columns
        self.without_default = {name for name, one in columns.items() if one.columns[0].default is None}
        self._kept: dict[tuple[str, Rules], Any] = {}

    @classmethod
    def of(cls, job_class: type[J]) -> Table[J]:
        """Return the table of a mapped class, made once."""
        table: Table[J] | None = vars(job_class).get("__mainspring_table__")
        if table is None:
            table = cls(job_class)
            job_class.__mainspring_table__ = table  # type: ignore[attr-defined]
        return table

    # -- ids ---------------------------------------------------------------------------------------------------

    def read_id(self, value: Any) -> tuple[Any, ...]:
        """Return the primary key's values, from one value, a tuple in the key's order, or a mapping by name."""
        name = self.job_class.__name__
        if isinstance(value, Mapping):
            if set(value) != set(self.key):
                raise ValueError(f"{name} has the primary key ({', '.join(self.key)}), not ({', '.join(value)})")
            values = tuple(value[part] for part in self.key)
        else:
            values = tuple(value) if isinstance(value, tuple | list) else (value,)
        if len(values) != len(self.key):
            raise ValueError(
                f"{name} has the primary key ({', '.join(self.key)}): "
                f"its id is {len(self.key)} value{'s' * (len(self.key) > 1)}, not {value!r}"
            )
        for part, one in zip(self.key, values, strict=True):
            self._check_type(part, one)
        return values

    def _check_type(self, part: str, value: Any) -> None:
        try:
            kind = self.column(part).type.python_type
        except NotImplementedError:  # the type does not define its Python type
            return
        if value is None or (kind in (int, str) and (not isinstance(value, kind) or isinstance(value, bool))):
            raise TypeError(f"{self.job_class.__name__}.{part} is of type {kind.__name__}, which {value!r} is not")

    def show_id(self, key: tuple[Any, ...]) -> Any:
        """Return an id in the form the user gave: one value, or a tuple."""
        return key[0] if len(key) == 1 else key

    # -- parts of statements -----------------------------------------------------------------------------------

    def column(self, name: str) -> Any:
        """Return a mapped column."""
        return getattr(self.job_class, name)

    def now(self, name: str, seconds: float = 0.0) -> ColumnElement[Any]:
        """Return the database's time plus `seconds`, in the form that the column stores."""
        return now_for(self.column(name).type, seconds)

    def is_job(self, key: tuple[Any, ...]) -> ColumnElement[bool]:
        """Return the condition that selects this job's row."""
        return and_(*(self.column(part) == value for part, value in zip(self.key, key, strict=True)))

    def update(self) -> Update:
        """Begin an UPDATE that does not touch objects in sessions."""
        return update(self.job_class).execution_options(synchronize_session=False)

    def _expired(self, expire: float) -> ColumnElement[bool]:
        return and_(self.column("lock").is_not(None), self.column("lock_at") <= self.now("lock_at", -expire))

    def free(self, expire: float | None) -> ColumnElement[bool]:
        """Return the condition that the lock is free, or was taken longer than `expire` seconds ago."""
        nobody: ColumnElement[bool] = self.column("lock").is_(None)
        return nobody if expire is None else or_(nobody, self._expired(expire))

    def _branches(self, rules: Rules) -> list[ColumnElement[bool]]:
        """Return one startable condition per status, so that an index on (status, create_at) serves each."""
        status = self.column("status")
        free = self.free(rules.expire)
        failed = and_(status == rules.failed, free)
        if self.backs_off:
            retry_at = self.column("retry_at")
            failed = and_(failed, or_(retry_at.is_(None), retry_at <= self.now("retry_at")))
        waiting = [and_(status == code, free) for code in rules.waiting]
        return [*waiting, failed, and_(status == rules.in_progress, self._expired(rules.expire))]

    def startable(self, rules: Rules) -> ColumnElement[bool]:
        """Return the condition under which the step may take a job."""
        return or_(*self._branches(rules))

    # -- claiming ----------------------------------------------------------------------------------------------

    def _take(self, rules: Rules) -> Update:
        """Return the UPDATE that takes a job; it ignores a job whose holder vanished at the last allowed attempt.

        The order matters: MariaDB computes each value from the values set before it.
        """
        status, lock, retry, errors = (self.column(name) for name in ("status", "lock", "retry", "errors"))
        worn_out = and_(status == rules.in_progress, retry + 1 >= rules.max_retry)
        vanished = lock.is_not(None)
        lost = self._lost(rules)
        values: list[tuple[Any, Any]] = [
            (status, case((worn_out, rules.ignored), else_=rules.in_progress)),
            (retry, case((vanished, retry + 1), else_=retry)),
            (errors, errors if lost is None else case((vanished, literal(lost, errors.type)), else_=errors)),
            (self.column("lock_at"), self.now("lock_at")),
            (lock, bindparam("claim_token", type_=lock.type)),
        ]
        return self.update().ordered_values(*values)

    def _lost(self, rules: Rules) -> Any:
        """Return the largest record of a vanished holder that fits into the column, or None."""
        length = getattr(self.column("errors").type, "length", None)
        for record in lost_records(rules.expire):
            if length is None or len(json.dumps(record)) <= length:
                return self.stored(record)
        return None

    def take_one(self, session: Session, rules: Rules, token: str, key: tuple[Any, ...]) -> bool:
        """Take this job if it is startable by the database's clock; return True on success."""
        statement = self._made(self._take_one, rules)
        values = {"claim_token": token} | {f"claim_key_{number}": value for number, value in enumerate(key)}
        return cast("CursorResult[Any]", session.execute(statement, values)).rowcount == 1

    def _take_one(self, rules: Rules) -> Update:
        key = (
            column == bindparam(f"claim_key_{number}", type_=column.type)
            for number, column in enumerate(self._key_columns())
        )
        return self._take(rules).where(*key, self.startable(rules))

    def take_oldest(self, session: Session, rules: Rules, token: str) -> tuple[Any, ...] | None:
        """Take the oldest startable job in one statement; skip jobs that other workers are taking."""
        row = session.execute(self._made(self._take_oldest, rules), {"claim_token": token}).first()
        return None if row is None else tuple(row)

    def _take_oldest(self, rules: Rules) -> Any:
        key = self._key_columns()
        ahead = self._ahead(rules)
        mine = (
            select(*key)
            .where(tuple_(*key).in_(select(*(ahead.c[part] for part in self.key))), self.startable(rules))
            .order_by(self.column("create_at"), *key)
            .limit(1)
            .with_for_update(skip_locked=True)
            .correlate(None)
        )
        # `=`, not IN: PostgreSQL may run the subquery of an IN once per row, and then take several jobs.
        return self._take(rules).where(tuple_(*key) == mine.scalar_subquery()).returning(*key)

    def oldest(self, session: Session, rules: Rules) -> list[tuple[Any, ...]]:
        """Return the ids of the oldest startable jobs."""
        return [tuple(row) for row in session.execute(self._made(self._oldest, rules))]

    def _oldest(self, rules: Rules) -> Select[Any]:
        ahead = self._ahead(rules)
        key = [ahead.c[part] for part in self.key]
        return select(*key).order_by(ahead.c.create_at, *key).limit(CLAIM_CANDIDATES)

    def _ahead(self, rules: Rules) -> Subquery:
        order = (self.column("create_at"), *self._key_columns())
        names = dict.fromkeys((*self.key, "create_at"))
        columns = [self.column(name).label(name) for name in names]
        parts = [
            select(*select(*columns).where(branch).order_by(*order).limit(CLAIM_CANDIDATES).subquery().c)
            for branch in self._branches(rules)
        ]
        return union_all(*parts).subquery()

    def _key_columns(self) -> list[Any]:
        return [self.column(part) for part in self.key]

    def _made(self, make: Callable[[Rules], Any], rules: Rules) -> Any:
        """Return a cached statement: building one costs more than running it."""
        kept = self._kept.get((make.__name__, rules))
        if kept is None:
            if len(self._kept) >= STATEMENTS_KEPT:  # a caller has new rules for every call
                self._kept.clear()
            kept = self._kept[make.__name__, rules] = make(rules)
        return kept

    # -- reading -----------------------------------------------------------------------------------------------

    def read(self, session: Session, key: tuple[Any, ...]) -> J | None:
        """Read a job as this transaction sees it, detached from any session."""
        connection = session.connection(bind_arguments={"mapper": inspect(self.job_class)})
        # Use a separate session: the user's may hold the job already, with unsaved changes.
        with Session(connection, join_transaction_mode="rollback_only", autoflush=False) as reader:
            return reader.get(self.job_class, key)

    def glance(self, session: Session, rules: Rules, key: tuple[Any, ...]) -> tuple[int, bool, bool, Any] | None:
        """Return a job's status, whether its lock is live, whether the step may take it, and its `retry_at`."""
        live = not_(self.free(rules.expire))
        startable = self.startable(rules)
        retry_at = self.column("retry_at") if self.backs_off else null()
        flags = (case((condition, 1), else_=0) for condition in (live, startable))
        row = session.execute(select(self.column("status"), *flags, retry_at).where(self.is_job(key))).first()
        return None if row is None else (row[0], bool(row[1]), bool(row[2]), row[3])

    # -- while it is held --------------------------------------------------------------------------------------

    def write(self, session: Session, key: tuple[Any, ...], token: str | None, values: Mapping[str, Any]) -> bool:
        """Write to a job while `token` holds its lock (None: always); return True if a row was written."""
        held = () if token is None else (self.column("lock") == token,)
        statement = self.update().where(self.is_job(key), *held)
        statement = statement.values({self.column(name): value for name, value in values.items()})
        return cast("CursorResult[Any]", session.execute(statement)).rowcount == 1

    def stored(self, record: dict[str, Any]) -> Any:
        """Return an error's record in the form that the column stores: JSON, also in a text column."""
        return json.dumps(record) if isinstance(self.column("errors").type, String) else record

    def ended(self, status: int, retry: int, wait: float | None) -> dict[str, Any]:
        """Return the values that every end writes: the status, the count, a free lock, and the next retry time."""
        values = {"status": status, "retry": retry, "lock": None, "update_at": self.now("update_at")}
        if self.backs_off:
            values["retry_at"] = null() if wait is None else self.now("retry_at", wait)
        return values
