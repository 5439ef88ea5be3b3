"""PostgreSQL stops, hangs up and runs out of connections in the middle of queue work: nothing is lost or doubled."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import psycopg
import pytest
from sqlalchemy import MetaData, create_engine, text

from mainspring.core.policy import Policy
from mainspring.core.run import Run, Status
from mainspring.errors import OutcomeUnknown, StoreUnavailable
from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.jobstores.sqlalchemy.connections import PooledConnections
from mainspring.jobstores.sqlalchemy.postgresql.dialect import PostgreSQLDatabase
from mainspring.testing.conformance.helpers import add_run, claim, current, make_run, new_id, succeed
from tests.servers import PostgreSQL, Server
from tests.waiting import until

KILLS = 12
BATCH = 10
Start = Callable[[type[Server]], Server]
T = TypeVar("T")


class Work:
    """Threads that add, claim and settle runs until they are told to finish; they repeat what was not answered."""

    def __init__(self, store: SQLAlchemyJobStore) -> None:
        self.store = store
        self.lock = threading.Lock()
        self.added: list[str] = []
        self.settled: Counter[str] = Counter()
        self.uncertain: set[str] = set()
        self.outages = 0
        self._enough, self._done = threading.Event(), threading.Event()
        loops = [self._produce, self._produce, self._execute, self._execute]
        self._threads = [threading.Thread(target=loop, args=(f"t{n}",), daemon=True) for n, loop in enumerate(loops)]

    def __enter__(self) -> Work:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Add nothing more, and let the rest be done."""
        self._enough.set()
        for thread in self._threads[:2]:
            thread.join(60)
        wanted = len(self.added)
        until(
            lambda: self.store.stats(RunQuery(status=(Status.SUCCEEDED,))).matching >= wanted, despite=StoreUnavailable
        )
        self._done.set()
        for thread in self._threads:
            thread.join(60)

    def _produce(self, name: str) -> None:
        number = 0
        while not self._enough.is_set():
            if len(self.added) - len(self.settled) > 10 * BATCH:  # no more than can be done before the test ends
                time.sleep(0.005)
                continue
            number += 1
            ids = [f"{name}-{number}-{n}" for n in range(BATCH)]
            runs = self._insist(lambda ids=ids: [make_run(self.store, id) for id in ids], [])  # type: ignore[misc]
            assert self._insist(partial(self.store.add_runs, runs), []) == ids
            with self.lock:
                self.added += ids

    def _execute(self, name: str) -> None:
        number = 0
        while not self._done.is_set():
            number += 1
            runs = self._insist(partial(claim, self.store, limit=BATCH, token=f"{name}-{number}"), [])
            if not runs:
                self._done.wait(0.01)
                continue
            answers = self._insist(partial(self._settle, runs), [run.id for run in runs])
            with self.lock:
                self.settled.update(run.id for run, told in zip(runs, answers, strict=True) if told)

    def _settle(self, runs: list[Run]) -> list[bool]:
        return self.store.settle([succeed(self.store, run) for run in runs])

    def _insist(self, act: Callable[[], T], ids: list[str]) -> T:
        """Say the same until it is answered; note whose first word may have counted without an answer."""
        while True:
            try:
                return act()
            except StoreUnavailable as error:
                with self.lock:
                    self.outages += 1
                    if isinstance(error, OutcomeUnknown):
                        self.uncertain.update(ids)
                time.sleep(0.01)

    def check(self) -> None:
        """Compare what was answered with what is stored."""
        runs = self.store.find_runs(RunQuery(), limit=10 * len(self.added))
        assert len(runs) == len(self.added) > BATCH
        assert {run.id for run in runs} == set(self.added)
        assert {(run.status, run.attempt) for run in runs} == {(Status.SUCCEEDED, 1)}
        assert self.store.stats().totals["succeeded"] == len(self.added)
        assert set(self.settled.values()) == {1}
        assert set(self.added) - self.settled.keys() <= self.uncertain


def test_an_immediate_stop_in_the_middle_of_queue_work_loses_and_doubles_nothing(start_server: Start) -> None:
    server = start_server(PostgreSQL)
    store = SQLAlchemyJobStore(server.url)
    with Work(store) as work:
        for number in (1, 2):
            until(lambda number=number: len(work.settled) > number * 5 * BATCH)  # type: ignore[misc]
            seen = work.outages
            assert server._process is not None
            server._process.send_signal(signal.SIGQUIT)  # the server's own word for it: no farewell, no checkpoint
            server._process.wait()
            until(lambda seen=seen: work.outages > seen)  # type: ignore[misc]
            server.restart()
    work.check()
    store.shutdown()


def _lazy(server: Server) -> SQLAlchemyJobStore:
    """Let a server write to its disk only for those who wait for it, and open a store there."""
    url = server.url.replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
    server.restart()
    return SQLAlchemyJobStore(server.url)


def test_a_claim_of_a_run_that_may_start_only_once_outlasts_a_crash(start_server: Start) -> None:
    server = start_server(PostgreSQL)
    store = _lazy(server)
    run = add_run(store, policy=Policy(delivery="at_most_once"))
    [claimed] = claim(store)
    server.restart()
    assert _patiently(lambda: claim(store)) == []
    kept = current(store, run)
    assert (kept.status, kept.token, kept.attempt) == (Status.RUNNING, claimed.token, 1)
    assert store.settle([succeed(store, claimed)]) == [True]
    store.shutdown()


def test_a_run_whose_claim_a_crash_has_undone_is_claimed_again_and_ends_once(start_server: Start) -> None:
    server = start_server(PostgreSQL)
    store = _lazy(server)
    run = add_run(store)
    [claimed] = claim(store)
    server.restart()
    again = _patiently(lambda: claim(store))
    assert store.settle([succeed(store, claimed)]) == [not again]  # the server may have been quicker than its death
    assert store.settle([succeed(store, each) for each in again]) == [True] * len(again)
    assert current(store, run).status is Status.SUCCEEDED
    store.shutdown()


def _patiently(act: Callable[[], T]) -> T:
    """Act as soon as the server answers again."""
    for _ in range(200):
        try:
            return act()
        except StoreUnavailable:
            time.sleep(0.05)
    return act()


def test_sessions_terminated_all_the_time_lose_and_double_nothing(postgresql_server: PostgreSQL) -> None:
    store = SQLAlchemyJobStore(postgresql_server.url, tablename=f"{new_id('cut')}_jobs")
    store.beat()
    chance = random.Random(6)
    engine = create_engine(postgresql_server.url, isolation_level="AUTOCOMMIT")
    killed = 0
    with engine.connect() as connection, Work(store) as work:
        found = text("SELECT pid FROM pg_stat_activity WHERE application_name = 'mainspring' ORDER BY pid")
        while killed < KILLS:
            until(lambda: bool(connection.execute(found).scalars().all()))
            pid = chance.choice(connection.execute(found).scalars().all() or [0])
            killed += bool(connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid}).scalar())
            time.sleep(0.2)
    engine.dispose()
    work.check()
    store.shutdown()


def test_a_limit_of_connections_is_told_and_when_there_is_room_again_it_goes_on(postgresql_server: PostgreSQL) -> None:
    role = new_id("few").replace("-", "")
    engine = create_engine(postgresql_server.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 1"))
        connection.execute(text(f"GRANT ALL ON SCHEMA public TO {role}"))
    few = create_engine(postgresql_server.url.replace("postgres@", f"{role}@"))
    store = SQLAlchemyJobStore(
        postgresql_server.url.replace("postgres@", f"{role}@"), tablename=f"{new_id('few')}_jobs"
    )
    with few.connect(), pytest.raises(StoreUnavailable) as caught:
        store.beat()
    assert f'too many connections for role "{role}"' in str(caught.value)
    assert "the server has no connection left; raise its limit, or give the store fewer" in str(caught.value)
    few.dispose()
    until(lambda: store.beat() > 0, despite=StoreUnavailable)  # the server notices that it was left
    run = add_run(store)
    assert [each.id for each in claim(store)] == [run.id]
    store.shutdown()
    with engine.connect() as connection:
        connection.execute(text(f"DROP OWNED BY {role}"))
        connection.execute(text(f"DROP ROLE {role}"))
    engine.dispose()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (psycopg.errors.InvalidSqlStatementName("prepared statement does not exist"), "a pooler in transaction mode"),
        (psycopg.errors.DuplicatePreparedStatement("it exists"), "a pooler in transaction mode"),
        (psycopg.OperationalError("FATAL: unsupported startup parameter: options"), "ignore_startup_parameters"),
        (psycopg.errors.DiskFull("no space left"), "the server's disk is full"),
        (psycopg.errors.ReadOnlySqlTransaction("cannot execute INSERT"), "connect to the primary"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_server_refuses_is_told_with_what_to_do(error: psycopg.Error, words: str) -> None:
    engine = create_engine("postgresql+psycopg://me:s3cr3t@host/jobs")
    database = PostgreSQLDatabase(PooledConnections(engine), "jobs", MetaData(), None)
    said = str(database.unavailable(error))
    database.close()
    assert words in said
    assert said.startswith("postgresql+psycopg://me:***@host/jobs: ")
    assert str(error) in said
