"""What the SQL store does besides the contract: opening, errors, schema, indexes, group commit, time."""

from __future__ import annotations

import logging
import re
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, MetaData, create_engine, text

from mainspring.errors import ConfigurationError, ConflictingIdError, StoreUnavailable
from mainspring.jobstores.base import NodeInfo, RunQuery
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.jobstores.sqlalchemy.postgresql.statements import PostgreSQLTx
from mainspring.jobstores.sqlalchemy.sqlite import dialect as sqlite_dialect
from mainspring.jobstores.sqlalchemy.sqlite import transactions
from mainspring.jobstores.sqlalchemy.sqlite.host_clock import HostClock
from mainspring.jobstores.sqlalchemy.sqlite.transactions import SQLiteTx
from mainspring.jobstores.sqlalchemy.steps import service as service_steps
from mainspring.jobstores.sqlalchemy.steps.runs import is_plain_success
from mainspring.testing.conformance.helpers import (
    add_job,
    add_run,
    behind,
    claim,
    due_one,
    fire,
    give_back,
    make_job,
    make_run,
    start,
    succeed,
)
from tests.servers import MariaDB, PostgreSQL

NODE = NodeInfo(id="n", host="h", pid=1, started_at=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLAlchemyJobStore]:
    store = SQLAlchemyJobStore(f"sqlite:///{path}")
    yield store
    store.shutdown()


def _execute(path: Path, statement: str) -> list[Any]:
    connection = sqlite3.connect(path)
    with connection:
        rows = connection.execute(statement).fetchall()
    connection.close()
    return rows


# -- opening -------------------------------------------------------------------------------------------------------


def test_making_a_store_opens_nothing(path: Path) -> None:
    SQLAlchemyJobStore(f"sqlite:///{path}")
    assert not path.exists()


def test_a_store_is_used_again_after_its_shutdown(store: SQLAlchemyJobStore) -> None:
    run = add_run(store)
    store.shutdown()
    assert [one.id for one in claim(store)] == [run.id]


def test_a_database_in_memory_lives_as_long_as_the_store() -> None:
    store = SQLAlchemyJobStore("sqlite://")
    add_job(store)
    assert fire(store, due_one(store)) is not None
    assert len(claim(store)) == 1
    store.shutdown()


def test_an_engine_given_is_used_and_not_disposed_of(path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}")
    pool = engine.pool
    store = SQLAlchemyJobStore(engine=engine)
    add_job(store)
    store.shutdown()
    assert engine.pool is pool
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM mainspring_jobs")).scalar() == 1
    engine.dispose()


def test_the_tables_are_named_after_the_first_and_added_to_the_metadata(path: Path) -> None:
    metadata = MetaData()
    store = SQLAlchemyJobStore(f"sqlite:///{path}", tablename="crew_jobs", metadata=metadata)
    assert store.beat()
    assert {"crew_jobs", "crew_runs", "crew_meta"} <= set(metadata.tables)
    store.shutdown()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "either url= or engine="),
        ({"url": "sqlite://", "synchronous": "OFF"}, "'FULL' or 'NORMAL'"),
        ({"url": "sqlserver://host/name"}, "no job store for 'sqlserver'"),
        ({"url": "postgresql+psycopg2://host/name"}, r"postgresql\+psycopg://"),
        ({"url": "not a url"}, "not a database URL"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        SQLAlchemyJobStore(**arguments)


def test_an_argument_of_apscheduler_is_accepted_with_a_note(caplog: pytest.LogCaptureFixture) -> None:
    SQLAlchemyJobStore("sqlite://", pickle_protocol=4)
    assert "pickle_protocol=4 has no meaning" in caplog.text


def test_the_table_of_apscheduler_is_left_alone_and_mentioned(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _execute(path, "CREATE TABLE apscheduler_jobs (id VARCHAR(191), next_run_time FLOAT, job_state BLOB)")
    _execute(path, "INSERT INTO apscheduler_jobs VALUES ('old', 1.0, x'80')")
    caplog.set_level(logging.INFO, "mainspring.jobstores.sqlalchemy")
    store = SQLAlchemyJobStore(f"sqlite:///{path}")
    assert store.get_all_jobs() == []
    store.remove_all_jobs()
    store.shutdown()
    assert "mainspring import" in caplog.text
    assert _execute(path, "SELECT * FROM apscheduler_jobs") == [("old", 1.0, b"\x80")]


# -- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_server_that_is_not_there_is_unavailable_and_the_password_is_not_told(scheme: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: nobody answers there
        store = SQLAlchemyJobStore(f"{scheme}://me:s3cr3t@127.0.0.1:{unused.getsockname()[1]}/jobs")
        with pytest.raises(StoreUnavailable) as caught:
            store.beat()
    assert "127.0.0.1" in str(caught.value)
    assert "s3cr3t" not in f"{caught.value} {store!r}"


def test_a_file_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    store = SQLAlchemyJobStore(f"sqlite:///{tmp_path}/no/such/folder/jobs.db")
    with pytest.raises(StoreUnavailable, match="unable to open"):
        store.beat()


def test_a_file_locked_by_another_is_unavailable_and_then_works(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_dialect, "STEP_TIMEOUT_SECONDS", 0.05)
    store = SQLAlchemyJobStore(f"sqlite:///{path}")
    assert store.beat()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    run = make_run(store)
    with pytest.raises(StoreUnavailable, match="locked"):
        store.add_runs([run])
    other.execute("ROLLBACK")
    other.close()
    assert store.add_runs([run]) == [run.id]
    store.shutdown()


# -- group commit --------------------------------------------------------------------------------------------------


def test_writes_that_wait_together_share_a_commit_and_each_has_its_own_answer(store: SQLAlchemyJobStore) -> None:
    add_job(store, "taken")
    database: Any = store._open()
    commits: list[str] = []
    database._writer.set_trace_callback(lambda said: commits.append(said) if said == "COMMIT" else None)
    outcomes: dict[int, str] = {}

    def add(number: int) -> None:
        try:
            store.add_job(make_job(store, "taken" if number == 3 else f"job-{number}"))
            outcomes[number] = "added"
        except ConflictingIdError as error:
            outcomes[number] = error.job_id

    threads = [threading.Thread(target=add, args=(number,)) for number in range(6)]
    with database._turn:  # while somebody writes, the others come and wait
        for thread in threads:
            thread.start()
        while len(database._queue) < 6:
            pass
    for thread in threads:
        thread.join()
    assert outcomes == {0: "added", 1: "added", 2: "added", 3: "taken", 4: "added", 5: "added"}
    assert len(commits) == 1
    assert len(store.get_all_jobs()) == 6


# -- time ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    """Return the clocks of the host, which stand still unless they are moved."""
    host = Host()
    monkeypatch.setattr(time, "time_ns", lambda: host.wall)
    monkeypatch.setattr(time, "monotonic_ns", lambda: host.steady)
    monkeypatch.setattr("mainspring.jobstores.sqlalchemy.database.time", host)
    return host


class Host:
    """The clocks of a machine."""

    def __init__(self) -> None:
        self.wall, self.steady = time.time_ns(), time.monotonic_ns()

    def monotonic(self) -> float:
        """Stand in for the module `time`."""
        return self.steady / 1e9

    def pass_(self, seconds: float) -> None:
        """Let time pass."""
        self.wall += int(seconds * 1e9)
        self.steady += int(seconds * 1e9)

    def jump(self, seconds: float) -> None:
        """Set the wall clock."""
        self.wall += int(seconds * 1e9)


def test_a_small_step_back_of_the_host_clock_is_made_up_for_by_going_slower(host: Host) -> None:
    clock = HostClock()
    before = clock.now()
    host.jump(-1.5)
    host.pass_(1.0)
    assert clock.now() == before + 500_000
    host.pass_(2.0)
    assert clock.now() == host.wall // 1000


@pytest.mark.parametrize("ahead", [5.0, 8 * 86400.0])
def test_a_clock_that_was_ahead_once_leaves_nobody_ahead(host: Host, path: Path, ahead: float) -> None:
    first = SQLAlchemyJobStore(f"sqlite:///{path}")
    first.beat(NODE, 30)
    host.jump(ahead)
    first.beat(NODE, 30)
    host.pass_(1.0)
    host.jump(-ahead)
    first.beat(NODE, 30)
    later = SQLAlchemyJobStore(f"sqlite:///{path}")
    assert first.beat() == later.beat() == host.wall // 1000
    first.shutdown()
    later.shutdown()


@pytest.mark.parametrize("looks", ["a process that runs", "a new process"])
def test_a_jump_of_the_clock_is_no_reason_to_delete_what_has_ended(host: Host, path: Path, looks: str) -> None:
    store = SQLAlchemyJobStore(f"sqlite:///{path}")
    run = start(store)
    store.settle([succeed(store, run)])
    store.beat(NODE, 30)
    host.jump(8 * 86400.0)
    if looks == "a new process":
        store.shutdown()
        store = SQLAlchemyJobStore(f"sqlite:///{path}")
    for _ in range(3):
        store.beat(NODE, 30)
        assert store.prune() == 0
        host.pass_(5.0)
    host.jump(-8 * 86400.0)
    assert store.prune() == 0
    assert store.get_runs([run.id]) != [None]
    store.shutdown()


def test_what_is_past_its_retention_is_deleted_when_a_jump_of_the_clock_has_lasted(host: Host, path: Path) -> None:
    store = SQLAlchemyJobStore(f"sqlite:///{path}")
    store.settle([succeed(store, start(store))])
    store.beat(NODE, 30)
    host.jump(8 * 86400.0)
    assert store.prune() == 0
    host.pass_(3599.0)
    assert store.prune() == 0
    host.pass_(2.0)
    assert store.prune() == 1
    store.shutdown()


def test_what_was_to_start_while_the_clock_was_ahead_starts_when_it_is_right_again(host: Host, path: Path) -> None:
    store = SQLAlchemyJobStore(f"sqlite:///{path}")
    add_job(store, due_in=-10)
    host.jump(86400.0)
    assert store.due(10, 2.0).jobs
    at_once, later = add_run(store, due_in=0), add_run(store, due_in=10)
    host.jump(-86400.0)
    assert claim(store) == []
    store.mend(thorough=True)
    assert [run.id for run in claim(store)] == [at_once.id]
    assert store.due(10, 2.0).jobs
    host.pass_(86410.0)
    assert [run.id for run in claim(store)] == [later.id]
    store.shutdown()


# -- ends ----------------------------------------------------------------------------------------------------------


def test_outcomes_of_all_kinds_are_settled_together(store: SQLAlchemyJobStore) -> None:
    names = [f"run-{number}" for number in range(5)]
    for name in names:
        add_run(store, name)
    runs = {run.id: run for run in claim(store)}
    store.cancel(["run-4"])
    back = [give_back(store, runs[name]) for name in ("run-1", "run-4")]  # it is the end of the last that is expected
    assert store.settle([back[0], succeed(store, runs["run-0"]), back[1]]) == [True, True, False]
    lost = succeed(store, replace(runs["run-2"], token="of-another"))
    ended = succeed(store, runs["run-3"])
    assert store.settle([lost, ended]) == [False, True]
    statuses = [found.status.value for found in store.get_runs(names) if found is not None]
    assert statuses == ["succeeded", "pending", "running", "succeeded", "running"]
    assert store.settle([ended]) == [False]
    assert store.stats().totals["succeeded"] == 2


def test_a_success_leaves_the_row_that_the_common_statements_leave(
    store: SQLAlchemyJobStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("quick", "common"):
        monkeypatch.setattr(transactions, "is_plain_success", is_plain_success if name == "quick" else lambda _: False)
        assert store.settle([succeed(store, start(store, name, queue="mail", priority=3))]) == [True]
    own = {"id", "payload", "state", "token", "run_at", "created_at", "finished_at", "claimed_at", "expires_at"}
    names = [name for _, name, *_ in _execute(path, "PRAGMA table_info(mainspring_runs)")]
    shown = [f"{name} IS NULL" if name in own else name for name in names]
    quick, common = _execute(path, f"SELECT {', '.join(shown)} FROM mainspring_runs")
    assert quick == common


# -- retention -----------------------------------------------------------------------------------------------------


def test_no_more_finished_runs_are_kept_than_were_asked_for(path: Path) -> None:
    store = SQLAlchemyJobStore(f"sqlite:///{path}", keep_runs=3)
    for _ in range(8):
        store.settle([succeed(store, start(store))])
        store.shift_clock(1)
    newest = [run.id for run in store.find_runs(RunQuery(), limit=3)]
    assert [store.prune(limit=4), store.prune(), store.prune()] == [4, 1, 0]
    assert [run.id for run in store.find_runs(RunQuery())] == newest
    store.shutdown()


@pytest.mark.parametrize("keep_runs", [0, 200])
def test_finished_runs_are_counted_again_only_when_there_may_be_too_many(path: Path, keep_runs: int) -> None:
    store = SQLAlchemyJobStore(f"sqlite:///{path}", keep_runs=keep_runs)
    store.add_runs([make_run(store) for _ in range(keep_runs + 6)])
    store.settle([succeed(store, run) for run in claim(store, limit=keep_runs + 3)])
    assert store.prune() == 3
    store.settle([succeed(store, run) for run in claim(store, limit=1)])
    assert store.prune() == (1 if keep_runs < 100 else 0)  # one in a hundred may be too many for a while
    store.settle([succeed(store, run) for run in claim(store)])
    store.prune()
    assert store.stats(RunQuery()).matching == keep_runs
    store.shutdown()


def test_runs_of_a_backlog_are_not_counted_at_each_prune(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SQLAlchemyJobStore(f"sqlite:///{path}", keep_runs=3)
    for _ in range(23):
        store.settle([succeed(store, start(store))])
        store.shift_clock(1)
    newest = [run.id for run in store.find_runs(RunQuery(), limit=3)]
    statements: list[str] = []
    original = SQLiteTx.all

    def noted(tx: SQLiteTx, statement: str, *params: Any) -> list[Any]:
        statements.append(statement)
        return original(tx, statement, *params)

    monkeypatch.setattr(SQLiteTx, "all", noted)
    assert [store.prune(limit=4) for _ in range(7)] == [4, 4, 4, 4, 3, 1, 0]
    assert sum("count(*)" in said and "{runs}" in said for said in statements) == 3  # at the first and the last two
    assert [run.id for run in store.find_runs(RunQuery())] == newest
    store.shutdown()


def test_no_more_than_so_many_deleted_ids_are_remembered(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_steps, "IDS_REMEMBERED", 2)
    store = SQLAlchemyJobStore(f"sqlite:///{path}")
    for name in ("a", "b", "c"):
        store.settle([succeed(store, start(store, name))])
        assert store.delete_runs([name]) == 1
        store.shift_clock(1)
    store.prune()
    store.add_runs([make_run(store, name) for name in ("a", "b", "c")])
    assert [run and run.id for run in store.get_runs(["a", "b", "c"])] == ["a", None, None]
    store.shutdown()


# -- indexes -------------------------------------------------------------------------------------------------------


def _filled(store: SQLAlchemyJobStore) -> list[str]:
    """Fill a store, and return the statements that due, fire, claim and settle use."""
    store.add_jobs([make_job(store, f"job-{n}", due_in=-10 if n < 5 else 500 + n, every=900) for n in range(1000)])
    store.add_runs([make_run(store, due_in=-10 if n < 5 else 500 + n) for n in range(2000)])
    for due in store.due(3, 1).jobs:
        fire(store, due)
    store.settle([succeed(store, run) for run in claim(store, limit=3)])
    return [statement for statement in store._open().texts if statement.startswith(("SELECT", "WITH"))]


def test_sqlite_finds_due_jobs_and_claims_by_their_indexes(store: SQLAlchemyJobStore, path: Path) -> None:
    used = ""
    for statement in _filled(store):
        said = store._open().texts[statement]
        for _, _, _, step in _execute_plan(path, said):
            used += step + "\n"
            assert not step.startswith("SCAN mainspring_runs"), said
            assert step != "SCAN mainspring_jobs" or "min(at)" in said, said
    for index in ("jobs_due", "runs_claim", "runs_held", "runs_open"):
        assert f"INDEX mainspring_{index}" in used


def _execute_plan(path: Path, statement: str) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(f"EXPLAIN QUERY PLAN {statement}", ["[]"] * statement.count("?")).fetchall()
    finally:
        connection.close()


@pytest.fixture
def postgresql(postgresql_server: PostgreSQL) -> Iterator[Engine]:
    yield from _engine(postgresql_server.url)


@pytest.fixture
def mariadb(mariadb_server: MariaDB) -> Iterator[Engine]:
    yield from _engine(mariadb_server.url)


def _engine(url: str) -> Iterator[Engine]:
    engine = create_engine(url)
    yield engine
    engine.dispose()


def _explain(engine: Engine, statements: list[str], analyze: str, rows: Callable[[Any], list[str]]) -> list[str]:
    with engine.begin() as connection:
        connection.exec_driver_sql(analyze)
        return [line for each in statements for line in rows(connection.exec_driver_sql(f"EXPLAIN {each}"))]


HOT = [
    "SELECT id FROM plan_jobs WHERE due_at <= 5 ORDER BY due_at LIMIT 10 FOR UPDATE SKIP LOCKED",
    "SELECT id FROM plan_runs WHERE status = 'pending' AND at_gate IS NULL AND lane = 'default' AND priority = 0"
    " AND run_at <= 5 ORDER BY run_at LIMIT 10 FOR UPDATE SKIP LOCKED",
    "SELECT priority FROM plan_runs WHERE status = 'pending' AND at_gate IS NULL AND lane = 'default'"
    " ORDER BY priority DESC LIMIT 1",
    "SELECT owner, count(*) FROM plan_runs WHERE owner IN ('a@1', 'b@1') AND owner IS NOT NULL"
    " AND expires_at IS NULL GROUP BY owner",
]


def test_postgresql_finds_due_jobs_and_claims_by_their_indexes(postgresql: Engine) -> None:
    store = SQLAlchemyJobStore(engine=postgresql, tablename="plan_jobs")
    _filled(store)
    lines = _explain(postgresql, HOT, "ANALYZE plan_runs, plan_jobs", lambda found: [row[0] for row in found])
    said = "\n".join(lines)
    for index in ("plan_jobs_due", "plan_runs_claim", "plan_runs_open"):
        assert index in said
    assert "Seq Scan" not in said
    store.shutdown()


def test_postgresql_looks_at_no_more_rows_than_it_needs_whatever_the_statistics_say(
    postgresql_server: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, dict[str, Any]]] = []
    fetch = PostgreSQLTx._fetch

    def note(tx: PostgreSQLTx, statement: str, params: dict[str, Any]) -> list[Any]:
        said.append((statement, params))
        return fetch(tx, statement, params)

    monkeypatch.setattr(PostgreSQLTx, "_fetch", note)
    store = SQLAlchemyJobStore(postgresql_server.url, tablename="fresh_jobs")
    store._read(lambda tx: tx.run("ALTER TABLE {runs} SET (autovacuum_enabled = false)"))
    store._read(lambda tx: tx.run("ALTER TABLE {jobs} SET (autovacuum_enabled = false)"))
    _filled(store)
    steps = [make_run(store, "step", priority=5)]
    for number in range(3000):
        steps.append(make_run(store, f"step{number}", after=behind(steps[-1])))
    for first_step in range(0, len(steps), 1000):
        store.add_runs(steps[first_step : first_step + 1000])
    (first,) = claim(store, limit=1)
    assert store.settle([succeed(store, first)]) == [True]
    plan = "\n".join(
        line
        for statement, params in list(said)
        for (line,) in store._read(lambda tx, s=statement, p=params: fetch(tx, f"EXPLAIN {s}", p))  # type: ignore[misc]
    )
    for index in ("fresh_jobs_due", "fresh_jobs_pkey", "fresh_runs_claim", "fresh_runs_held", "fresh_runs_pkey"):
        assert f"using {index}" in plan, index
    assert re.search(r"fresh_edges_pkey.*\n *Index Cond: \(pred = ", plan)
    assert re.search(r"fresh_runs_pkey.*\n *Index Cond: \(id = ANY", plan)
    assert "Seq Scan on fresh_edges" not in plan
    assert "Seq Scan on fresh_runs" not in plan
    assert "Seq Scan on fresh_jobs" not in plan
    store.shutdown()


def test_mariadb_finds_due_jobs_and_claims_by_their_indexes(mariadb: Engine) -> None:
    store = SQLAlchemyJobStore(engine=mariadb, tablename="plan_jobs")
    _filled(store)
    keys = _explain(
        mariadb, HOT, "ANALYZE TABLE plan_runs, plan_jobs", lambda found: [str(row["key"]) for row in found.mappings()]
    )
    extra = [key for key in keys if key != "None"]
    assert {"plan_jobs_due", "plan_runs_claim", "plan_runs_open"} <= set(extra)
    store.shutdown()


def test_a_claim_of_mariadb_reads_few_rows_however_many_wait(mariadb_server: MariaDB) -> None:
    engine = create_engine(mariadb_server.url, pool_size=1, max_overflow=0)  # what is counted is one connection's
    store = SQLAlchemyJobStore(engine=engine, tablename="wait_jobs")
    store.add_runs([make_run(store, priority=n % 3) for n in range(3000)])
    store._read(lambda tx: tx.run("FLUSH STATUS"))
    assert len(claim(store, limit=5)) == 5
    counts = store._read(
        lambda tx: tx.all(
            "SHOW SESSION STATUS WHERE Variable_name IN"
            " ('Handler_read_next', 'Handler_read_prev', 'Handler_read_rnd_next')"
        )
    )
    assert sum(int(count) for _, count in counts) < 100
    store.shutdown()
    engine.dispose()


def test_a_sqlite_that_is_too_old_is_refused_by_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 31, 1))
    monkeypatch.setattr("sqlite3.sqlite_version", "3.31.1")
    with pytest.raises(ConfigurationError, match=r"SQLite 3\.37 or newer is needed, and this Python brings 3\.31\.1"):
        SQLAlchemyJobStore(f"sqlite:///{tmp_path}/jobs.db").beat()


def test_bytes_where_text_should_be_do_not_keep_other_runs_from_being_claimed(tmp_path: Path) -> None:
    store = SQLAlchemyJobStore(f"sqlite:///{tmp_path}/jobs.db")
    damaged, whole = add_run(store), add_run(store)
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection, connection:
        connection.execute("UPDATE mainspring_runs SET group_id = CAST(x'ff' AS TEXT) WHERE id = ?", [damaged.id])
    assert whole.id in {run.id for run in claim(store)}
    store.shutdown()
