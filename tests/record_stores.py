"""Two stores that hold only jobs: a dictionary, and one table of any SQL database."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    LargeBinary,
    MetaData,
    Table,
    Text,
    and_,
    delete,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from mainspring.jobstores.split import JobRecord, JobRecords, WatchedRecords


class DictRecords(WatchedRecords):
    """Records in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[str, JobRecord] = {}
        self._lock = threading.Lock()

    def get(self, keys: Sequence[str]) -> list[JobRecord | None]:
        with self._lock:
            return [self._records.get(key) for key in keys]

    def all(self) -> list[JobRecord]:
        with self._lock:
            return list(self._records.values())

    def due(self, until: int, limit: int) -> tuple[list[JobRecord], int | None]:
        timed = [(each.wake, each.key, each) for each in self.all() if each.wake is not None]
        timed.sort(key=lambda item: item[:2])
        page = [each for wake, _, each in timed if wake <= until][:limit]
        return page, timed[len(page)][0] if len(timed) > len(page) else None

    def put(self, writes: Sequence[tuple[JobRecord, JobRecord | None]]) -> list[bool]:
        with self._lock:
            answers = []
            for record, seen in writes:
                answers.append(self._version(record.key) == (None if seen is None else seen.version))
                if answers[-1]:
                    self._records[record.key] = record
        self.changes.stir()
        return answers

    def delete(self, seen: Sequence[JobRecord]) -> list[bool]:
        with self._lock:
            answers = []
            for record in seen:
                answers.append(self._version(record.key) == record.version)
                if answers[-1]:
                    del self._records[record.key]
            return answers

    def _version(self, key: str) -> int | None:
        return self._records[key].version if key in self._records else None


_records = Table(
    "only_jobs",
    MetaData(),
    Column("key", Text().with_variant(postgresql.TEXT(collation="C"), "postgresql"), primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("wake", BigInteger, index=True),
    Column("data", LargeBinary, nullable=False),
)
_columns = _records.c


class TableRecords(JobRecords):
    """Records in a table of SQLite or PostgreSQL: each write is one statement of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        _records.create(engine, checkfirst=True)
        insert = sqlite.insert if engine.dialect.name == "sqlite" else postgresql.insert
        self._insert = insert(_records).on_conflict_do_nothing().execution_options(preserve_rowcount=True)

    def get(self, keys: Sequence[str]) -> list[JobRecord | None]:
        with self._engine.connect() as connection:
            rows = connection.execute(select(_records).where(_columns.key.in_(keys)))
            found = {row.key: JobRecord(*row) for row in rows}
        return [found.get(key) for key in keys]

    def all(self) -> list[JobRecord]:
        with self._engine.connect() as connection:
            return [JobRecord(*row) for row in connection.execute(select(_records))]

    def due(self, until: int, limit: int) -> tuple[list[JobRecord], int | None]:
        timed = select(_records).where(_columns.wake.is_not(None)).order_by(_columns.wake, _columns.key)
        with self._engine.connect() as connection:
            page = [JobRecord(*row) for row in connection.execute(timed.where(_columns.wake <= until).limit(limit))]
            following = select(_columns.wake).where(_columns.wake.is_not(None)).order_by(_columns.wake, _columns.key)
            return page, connection.scalar(following.offset(len(page)).limit(1))

    def put(self, writes: Sequence[tuple[JobRecord, JobRecord | None]]) -> list[bool]:
        answers = []
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for record, seen in writes:
                values = {"key": record.key, "version": record.version, "wake": record.wake, "data": record.data}
                if seen is None:
                    done = connection.execute(self._insert.values(values))
                else:
                    same = and_(_columns.key == record.key, _columns.version == seen.version)
                    done = connection.execute(update(_records).where(same).values(values))
                answers.append(done.rowcount == 1)
        return answers

    def delete(self, seen: Sequence[JobRecord]) -> list[bool]:
        answers = []
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for record in seen:
                same = and_(_columns.key == record.key, _columns.version == record.version)
                answers.append(connection.execute(delete(_records).where(same)).rowcount == 1)
        return answers
