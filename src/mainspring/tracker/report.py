"""Report on a tracker's table: the number of jobs per status, and the oldest locks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import MetaData, Table, func, inspect, select
from sqlalchemy.engine import Engine
from sqlalchemy.exc import NoSuchTableError

from mainspring.errors import ConfigurationError, near
from mainspring.tracker.clock import now_for

__all__ = ["JobLock", "TableReport", "report"]


@dataclass(frozen=True, slots=True)
class JobLock:
    """A locked job; its holder may have vanished."""

    id: Any
    status: int
    lock: str
    age: timedelta


@dataclass(frozen=True, slots=True)
class TableReport:
    """The state of a table at one moment of the database's clock."""

    counts: dict[int, int]
    locks: list[JobLock]


def report(engine: Engine, table: str, locks: int = 10) -> TableReport:
    """Count the jobs of a table (or `schema.table`) by status, and find its oldest locks."""
    found = _reflect(engine, table)
    status, lock, lock_at = found.c.status, found.c.lock, found.c.lock_at
    key = list(found.primary_key.columns)
    with engine.connect() as connection:
        rows = connection.execute(select(status, func.count()).group_by(status).order_by(status))
        counts = {row[0]: row[1] for row in rows}
        oldest = select(now_for(lock_at.type), lock_at, status, lock, *key).where(lock.is_not(None))
        oldest = oldest.order_by(lock_at, *key).limit(locks)
        held = [
            JobLock(ids[0] if len(ids) == 1 else tuple(ids), code, token, _age(now, since))
            for now, since, code, token, *ids in connection.execute(oldest)
        ]
    return TableReport(counts, held)


def _reflect(engine: Engine, name: str) -> Table:
    schema, _, plain = name.rpartition(".")
    try:
        found = Table(plain, MetaData(), schema=schema or None, autoload_with=engine)
    except NoSuchTableError:
        known = inspect(engine).get_table_names(schema or None)
        raise ConfigurationError(f"there is no table {name!r}{near(plain, known)}") from None
    missing = [column for column in ("status", "lock", "lock_at") if column not in found.c]
    if missing:
        raise ConfigurationError(f"{name!r} is not a tracker's table: it has no column {', '.join(missing)}")
    return found


def _age(now: datetime, since: datetime) -> timedelta:
    age = now - since
    return timedelta(days=age.days, seconds=age.seconds)
