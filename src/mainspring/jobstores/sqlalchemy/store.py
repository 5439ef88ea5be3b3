"""Keep jobs and runs in a SQL database: SQLite, PostgreSQL, MariaDB or MySQL.

SQLAlchemy provides the engine, the connection pool and the schema. The statements go straight to the driver.
"""

from __future__ import annotations

import logging
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Final, NoReturn, TypeVar

from sqlalchemy import MetaData, create_engine, make_url
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import ArgumentError

from mainspring.codec import Codec
from mainspring.core.insight.metrics import Tally
from mainspring.core.instants import SECOND
from mainspring.core.lanes import Want
from mainspring.core.quantities import check_count
from mainspring.core.run import Run
from mainspring.core.showing.redaction import without_password
from mainspring.core.store_urls import SCHEMES, with_driver
from mainspring.errors import ConfigurationError, StoreUnavailable, install_command, near
from mainspring.jobstores.base import (
    CHANGES,
    ENDS,
    Answers,
    BrokenJob,
    Generation,
    Health,
    Hold,
    NodeInfo,
    RunQuery,
    RunStanding,
    Stats,
)
from mainspring.jobstores.records.acts import ActRow
from mainspring.jobstores.records.rows import BeatRow, FireRow, JobRow, RunRow, SettleRow
from mainspring.jobstores.records.store import RecordStore
from mainspring.jobstores.sqlalchemy import health as sql_health
from mainspring.jobstores.sqlalchemy.connections import PooledConnections
from mainspring.jobstores.sqlalchemy.database import STEP_TIMEOUT_SECONDS, Database, StoreTx
from mainspring.jobstores.sqlalchemy.meta import SchemaMismatch
from mainspring.jobstores.sqlalchemy.steps import claims as claim_steps
from mainspring.jobstores.sqlalchemy.steps import history as history_steps
from mainspring.jobstores.sqlalchemy.steps import jobs as job_steps
from mainspring.jobstores.sqlalchemy.steps import runs as run_steps
from mainspring.jobstores.sqlalchemy.steps import service as service_steps
from mainspring.jobstores.sqlalchemy.steps.sweep import sweep
from mainspring.jobstores.sqlalchemy.waiting import gates as gate_steps
from mainspring.locks import free_in_children

__all__ = ["SQLAlchemyJobStore", "SQLStore", "SchemaMismatch"]

T = TypeVar("T")

log = logging.getLogger("mainspring.jobstores.sqlalchemy")

_DIALECTS: Final = {scheme.dialect: scheme for scheme in SCHEMES.values() if scheme.store == "sqlalchemy"}


class SQLStore(RecordStore):
    """A store whose verbs are steps in a SQL database; a subclass creates the `Database`."""

    volatile: ClassVar[bool] = False
    tells_topics = True

    def __init__(self, codec: Codec | None, keep_runs: int) -> None:
        super().__init__(codec)
        self.keep_runs = check_count("keep_runs", keep_runs, least=0)
        self._shift = 0
        self._opened: Database | None = None
        self._pid = 0
        self._opening = free_in_children(threading.Lock())

    # -- opening and closing -----------------------------------------------------------------------------------

    def start(self, scheduler: Any, alias: str) -> None:
        """Open the database, and create its tables."""
        super().start(scheduler, alias)
        self._open()

    def shutdown(self) -> None:
        """Close every connection and wake all waiters."""
        database, pid = self._opened, self._pid
        self._opened = None
        if database is not None and pid == os.getpid():
            with suppress(StoreUnavailable):  # raised if the file was deleted
                if database.is_replaced():
                    database.abandon()
                    return
            database.close()

    def _open(self) -> Database:
        """Return the database; open it on first use, after a fork, and after its file was replaced."""
        database = self._opened
        if database is not None and self._pid == os.getpid() and not database.is_replaced():
            return database
        with self._opening:
            if self._opened is not None and self._pid != os.getpid():
                self._opened.leave_to_parent()
                self._opened = None
            elif self._opened is not None and self._opened.is_replaced():
                log.warning("%s was replaced by another file while it was in use; it is opened anew", self)
                self._opened.abandon()
                self._opened = None
            if self._opened is None:
                database = self._database()
                database.mend = self._sweep()
                try:
                    database.open()
                except BaseException:
                    database.close()
                    raise
                database.shift = self._shift
                self._opened, self._pid = database, os.getpid()
            return self._opened

    @abstractmethod
    def _database(self) -> Database:
        """Create the `Database` object without opening it."""

    def _read(self, work: Callable[[StoreTx], T]) -> T:
        return self._open().read(work)

    def _write(self, work: Callable[[StoreTx], T]) -> T:
        return self._open().write(work)

    def _set_altered_aside(self, run_ids: Sequence[str], job_ids: Sequence[str]) -> int:
        return self._write(self._sweep(run_ids, job_ids))

    def _sweep(self, run_ids: Sequence[str] = (), job_ids: Sequence[str] = ()) -> Callable[[StoreTx], int]:
        return partial(sweep, break_=self._packer.broken_row, run_ids=run_ids, job_ids=job_ids)

    def _working(self) -> Database:
        """Return the database; raise if its tables have another schema, where this release must not claim or fire."""
        database = self._open()
        if database.other_schema is not None:
            raise database.other_schema
        return database

    # -- jobs --------------------------------------------------------------------------------------------------

    def _add_job_rows(self, rows: Sequence[JobRow], replace: bool) -> list[tuple[int, int]]:
        if not rows:
            return []
        database = self._open()
        versions = database.versions(len(rows))
        return database.at_once(lambda tx: tx.add_jobs(rows, replace, versions))

    def _update_job_row(self, row: JobRow) -> int:
        [version] = self._open().versions(1)
        self._write(lambda tx: job_steps.update_job(tx, row, version))
        return version

    def _job_rows(self, job_ids: Sequence[str] | None) -> list[JobRow]:
        return self._read(lambda tx: job_steps.get_jobs(tx, job_ids))

    def _broken_jobs(self) -> list[BrokenJob]:
        return self._read(job_steps.broken_jobs)

    def remove_jobs(self, job_ids: Sequence[str] | None = None, *, broken: bool = False) -> int:
        return self._write(lambda tx: job_steps.remove_jobs(tx, job_ids, "broken" if broken else "jobs"))

    def _due_rows(self, limit: int, hold: float) -> tuple[int, list[JobRow], int | None]:
        database = self._working()
        if not limit and not hold:
            return database.read(lambda tx: (tx.now, [], job_steps.next_at(tx)))
        return database.due(limit, hold)

    def _fire_rows(self, firings: Sequence[FireRow], lease: float) -> Answers[tuple[str, ...] | None]:
        if not firings:
            return Answers()
        database = self._working()
        versions = database.versions(len(firings))
        return database.at_once(lambda tx: tx.fire(firings, lease, versions))

    def set_aside(self, job_id: str, version: int, reason: str | None) -> bool:
        if reason is not None:
            return self._write(lambda tx: job_steps.set_aside(tx, job_id, version, reason))
        [new] = self._open().versions(1)
        return self._write(lambda tx: job_steps.restore(tx, job_id, new))

    # -- runs --------------------------------------------------------------------------------------------------

    def _add_run_rows(self, rows: Sequence[RunRow]) -> Answers[str | None]:
        if not rows:
            return Answers()
        answers, refused = self._open().at_once(lambda tx: (tx.add_runs(rows), tx.refused))
        return Answers([row.id if (found := answers[row.id]) == "" else found for row in rows], refused)

    def _claim_rows(
        self, wants: Sequence[Want], node: str, token: str, lease: float
    ) -> tuple[int, list[RunRow], int | None]:
        return self._working().claim(wants, node, token, lease)

    def _keep_claim(self, token: str) -> None:
        self._open().keep_claim(token)

    def _extend_rows(self, beats: Sequence[BeatRow], lease: float) -> list[Hold]:
        return self._write(lambda tx: claim_steps.extend(tx, beats, lease)) if beats else []

    def _settle_rows(self, outcomes: Sequence[SettleRow]) -> Answers[bool]:
        return self._open().settle(outcomes) if outcomes else Answers()

    def _lapsed_rows(self, limit: int, skip: int) -> list[RunRow]:
        return self._read(lambda tx: claim_steps.lapsed(tx, limit, skip))

    def _run_rows(self, run_ids: Sequence[str]) -> list[RunRow]:
        return self._open().read(partial(service_steps.get_runs, run_ids=run_ids)) if run_ids else []

    def standings(self, run_ids: Sequence[str]) -> list[RunStanding | None]:
        return self._read(lambda tx: service_steps.standings(tx, run_ids)) if run_ids else []

    def _find_run_rows(self, query: RunQuery, after: Run | None, limit: int) -> list[RunRow]:
        return self._read(lambda tx: service_steps.find_runs(tx, query, after, limit))

    def made_behind(self, after: Run | None, number: int) -> int | None:
        return self._read(lambda tx: service_steps.made_behind(tx, after, number))

    def _recent_run_rows(self, job_ids: Sequence[str], limit: int) -> list[list[RunRow]]:
        find = service_steps.find_runs
        return self._read(lambda tx: [find(tx, RunQuery(job_id=each), None, limit) for each in job_ids])

    def cancel(self, run_ids: Sequence[str]) -> list[bool]:
        return self._write(lambda tx: claim_steps.cancel(tx, run_ids)) if run_ids else []

    def delete_runs(self, run_ids: Sequence[str]) -> int:
        return self._write(lambda tx: run_steps.delete_runs(tx, run_ids)) if run_ids else 0

    def prune(self, limit: int = 1000) -> int:
        return self._write(lambda tx: service_steps.prune(tx, limit, self.keep_runs))

    # -- what people did ---------------------------------------------------------------------------------------

    def _add_act_rows(self, rows: Sequence[ActRow], oldest: str) -> None:
        self._write(lambda tx: history_steps.add_acts(tx, rows, oldest))

    def _find_act_rows(self, about: str | None, after: str | None, limit: int) -> list[ActRow]:
        return self._read(lambda tx: history_steps.find_acts(tx, about, after, limit))

    # -- counters ----------------------------------------------------------------------------------------------

    def tallies(
        self,
        new: Sequence[Tally] = (),
        *,
        kind: str = "all",
        name: str | None = None,
        level: int = 0,
        since: int = 0,
        until: int = 0,
    ) -> list[Tally]:
        if new:
            self._write(lambda tx: history_steps.add_tallies(tx, new))
        if since >= until:
            return []
        return self._read(lambda tx: history_steps.find_tallies(tx, kind, name, level, since, until))

    # -- service -----------------------------------------------------------------------------------------------

    def beat(self, node: NodeInfo | None = None, ttl: float = 0.0) -> int:
        database = self._open()
        if node is None:
            return database.read(lambda tx: tx.now)
        return database.write(partial(_beat, database, node, ttl) if ttl else partial(service_steps.leave, node=node))

    def nodes(self) -> list[NodeInfo]:
        return self._read(service_steps.nodes)

    def set_gate(self, name: str, allowed: int | None) -> None:
        self._write(lambda tx: gate_steps.set_gate(tx, name, allowed))

    def stats(self, query: RunQuery | None = None) -> Stats:
        return self._read(lambda tx: service_steps.stats(tx, query))

    def wait(self, cursor: int, timeout: float, topic: str = CHANGES) -> int:
        if topic != ENDS:
            return self._open().waker.wait(cursor, timeout)
        database = self._opened
        if database is None or self._pid != os.getpid():
            return cursor  # a caller reads the run, and so opens the store, before it waits; do not reopen a closed one
        if timeout > 0:
            return database.ends.wait(cursor, timeout)
        database.ends.rest()
        return cursor

    def cursor(self) -> int | None:
        database = self._opened
        return None if database is None else database.waker.cursor

    def generations(self) -> tuple[Generation, ...]:
        return self._read(service_steps.generations)

    def health(self) -> Health:
        return sql_health.health(self._open())

    def shift_clock(self, seconds: float) -> None:
        database = self._open()
        self._shift += int(seconds * SECOND)
        database.shift = self._shift
        database.waker.stir()


def _beat(database: Database, node: NodeInfo, ttl: float, tx: StoreTx) -> int:
    service_steps.beat(tx, node, ttl)
    tx.run("UPDATE {meta} SET value = ? WHERE name = 'clock'", database.trusted_now(tx) - database.shift)
    database.look_at_schema(tx)
    database.limited = {name for (name,) in tx.all("SELECT name FROM {queues} WHERE allowed > 0")}
    return tx.now


class SQLAlchemyJobStore(SQLStore):
    """A store of jobs and runs in a SQL database, for any number of processes.

    `start` or the first use opens the database. `synchronous` concerns only SQLite: with "NORMAL", a power failure may
    undo the last moments. The store keeps each finished run for its retention, and the newest `keep_runs` of those
    without a retention. It accepts `pickle_protocol` from programs written for APScheduler, and ignores it: the store
    pickles nothing.
    """

    def __init__(
        self,
        url: str | URL | None = None,
        engine: Engine | None = None,
        tablename: str = "mainspring_jobs",
        metadata: MetaData | None = None,
        pickle_protocol: int | None = None,
        tableschema: str | None = None,
        engine_options: Mapping[str, Any] | None = None,
        *,
        codec: Codec | None = None,
        synchronous: str = "FULL",
        keep_runs: int = 100_000,
    ) -> None:
        super().__init__(codec, keep_runs)
        if (url is None) == (engine is None):
            raise ConfigurationError("a SQLAlchemyJobStore takes either url= or engine=, and exactly one of them")
        if synchronous not in ("FULL", "NORMAL"):
            raise ConfigurationError(f"synchronous is {synchronous!r}; it can be 'FULL' or 'NORMAL'")
        if pickle_protocol is not None:
            log.warning("pickle_protocol=%r has no meaning: mainspring does not pickle jobs", pickle_protocol)
        self._url = _own_driver(url) if url is not None else engine.url  # type: ignore[union-attr]
        self._kind = _kind(self._url, engine)
        self.remote = self._kind != "sqlite"
        _check_driver(self._kind)
        self._given = engine
        self._tablename, self._metadata, self._tableschema = tablename, metadata, tableschema
        self._engine_options = dict(engine_options or {})
        self._synchronous = synchronous

    def _database(self) -> Database:
        # Import a driver only where it is used.
        metadata = self._metadata if self._metadata is not None else MetaData()
        common = (self._tablename, metadata, self._tableschema)
        if self._kind == "sqlite":
            from mainspring.jobstores.sqlalchemy.sqlite.dialect import SQLiteDatabase

            return SQLiteDatabase(
                self._connections({"check_same_thread": False}), *common, synchronous=self._synchronous
            )
        if self._kind == "postgresql":
            from mainspring.jobstores.sqlalchemy.postgresql.dialect import (
                CONNECT_ARGS,
                PostgreSQLDatabase,
                never_wait_for_ever,
            )

            pool = self._connections(CONNECT_ARGS)
            if pool.own:
                never_wait_for_ever(pool.engine)
            return PostgreSQLDatabase(pool, *common)
        from mainspring.jobstores.sqlalchemy.mariadb import CONNECT_ARGS as ARGS
        from mainspring.jobstores.sqlalchemy.mariadb import MariaDBDatabase

        return MariaDBDatabase(self._connections(ARGS), *common)

    def _connections(self, connect_args: Mapping[str, Any]) -> PooledConnections:
        if self._given is not None:
            return PooledConnections(self._given, own=False)
        options = dict(self._engine_options)
        options["connect_args"] = {**connect_args, **options.get("connect_args", {})}
        options.setdefault("pool_reset_on_return", None)  # the store ends a transaction before it returns a connection
        if self._kind != "sqlite" and "poolclass" not in options:
            options = {"pool_size": 10, "max_overflow": 20, "pool_timeout": STEP_TIMEOUT_SECONDS, **options}
        return PooledConnections(create_engine(self._url, **options))

    def add_runs_within(
        self, target: Any, connection: Connection, runs: Sequence[Run | RunRow], now: int
    ) -> Answers[str | None]:
        from mainspring.jobstores.sqlalchemy.joining import joined  # it imports SQLAlchemy's ORM, which few need

        database = self._open()
        rows = [run if isinstance(run, RunRow) else self.pack_run(run) for run in runs]
        answers = joined.add_runs(database, connection, rows, now)
        if database.kind != "postgresql":
            joined.tell_after_commit(database, target)
        # Do not report refused runs: no other connection sees them before the commit. The node that claims them later
        # cancels them.
        return Answers([row.id if (found := answers[row.id]) == "" else found for row in rows])

    def __reduce__(self) -> NoReturn:
        raise TypeError("a SQLAlchemyJobStore holds connections; give each process the URL, not the store")

    def __repr__(self) -> str:
        return f"<SQLAlchemyJobStore ({without_password(self._url.render_as_string(hide_password=True))})>"


def _own_driver(url: str | URL) -> URL:
    """Return the URL; if it names no driver, add the one that the statements are written for."""
    try:
        made = make_url(url)
    except ArgumentError:
        # The text may hold a password: do not quote it.
        raise ConfigurationError(
            "this is not a database URL; it looks like sqlite:///jobs.db or postgresql://user:password@host/name"
        ) from None
    if made.get_backend_name() == "sqlite" and made.host:
        raise ConfigurationError(
            f"sqlite://{made.host} names a server, and SQLite has none; three slashes for a relative path: "
            f"sqlite:///{made.host}{'/' + made.database if made.database else ''}, four for an absolute one"
        )
    return made.set(drivername=with_driver(made.drivername))


def _kind(url: URL, engine: Engine | None) -> str:
    """Return the kind of database; raise if the store has no dialect for it."""
    backend = url.get_backend_name()
    if backend not in _DIALECTS:
        raise ConfigurationError(f"no job store for {backend!r} databases{near(backend, _DIALECTS)}")
    driver = _DIALECTS[backend].driver
    used = engine.driver if engine is not None else url.get_driver_name()
    if used != driver:
        raise ConfigurationError(
            f"the driver {used!r} cannot be used for {backend}: the statements are written for {driver!r}; "
            f"use {backend}+{driver}://"
        )
    return "mysql" if backend == "mariadb" else backend


def _check_driver(kind: str) -> None:
    """Raise now if the driver of a server is missing, rather than later in every process that opens the store."""
    driver = _DIALECTS[kind].driver
    if kind == "sqlite":  # Python's own
        return
    try:
        import_module(driver)
    except ImportError as error:
        raise ConfigurationError(
            f"{kind}:// needs {driver}, which cannot be imported: {install_command(kind)} ({error})"
        ) from error
