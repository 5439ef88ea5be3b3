"""The database's clock, in UTC, as an SQL expression. No other clock decides who holds a lock."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NoReturn

from sqlalchemy import BigInteger, DateTime, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from mainspring.errors import ConfigurationError

__all__ = ["now_for"]


class DatabaseNow(FunctionElement[datetime]):
    """The time in UTC without a zone, shifted by a number of microseconds."""

    inherit_cache = True
    type = DateTime()

    def __init__(self, microseconds: int = 0) -> None:
        super().__init__(literal(microseconds, BigInteger))


class DatabaseNowAware(DatabaseNow):
    """The same for a column with a time zone. It is a separate class because SQLAlchemy caches statements by class."""

    inherit_cache = True
    type = DateTime(timezone=True)


def now_for(column_type: Any, seconds: float = 0.0) -> DatabaseNow:
    """Return the database's time plus `seconds`, to compare with or store in a column of this type."""
    kind = DatabaseNowAware if getattr(column_type, "timezone", False) else DatabaseNow
    return kind(round(seconds * 1_000_000))


@compiles(DatabaseNow)
def _unknown(element: DatabaseNow, compiler: Any, **kw: Any) -> NoReturn:
    raise ConfigurationError(
        f"the tracker reads the clock of SQLite, PostgreSQL, MariaDB and MySQL, not of {compiler.dialect.name!r}"
    )


@compiles(DatabaseNow, "sqlite")
def _sqlite(element: DatabaseNow, compiler: Any, **kw: Any) -> str:
    # Pad to the six digits that SQLAlchemy writes, so that times compare as text.
    moved = compiler.process(element.clauses, **kw)
    return f"strftime('%Y-%m-%d %H:%M:%f000', 'now', ({moved} / 1000000.0) || ' seconds')"


@compiles(DatabaseNow, "postgresql")
def _postgresql(element: DatabaseNow, compiler: Any, **kw: Any) -> str:
    moved = compiler.process(element.clauses, **kw)
    return f"(statement_timestamp() AT TIME ZONE 'UTC' + {moved} * interval '1 microsecond')"


@compiles(DatabaseNowAware, "postgresql")
def _postgresql_aware(element: DatabaseNowAware, compiler: Any, **kw: Any) -> str:
    return f"(statement_timestamp() + {compiler.process(element.clauses, **kw)} * interval '1 microsecond')"


@compiles(DatabaseNow, "mysql", "mariadb")
def _mysql(element: DatabaseNow, compiler: Any, **kw: Any) -> str:
    return f"TIMESTAMPADD(MICROSECOND, {compiler.process(element.clauses, **kw)}, UTC_TIMESTAMP(6))"
