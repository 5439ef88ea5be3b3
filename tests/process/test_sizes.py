"""Texts and results of any size: each is cut or refused by itself, and the outcomes of others are written."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from sqlalchemy import make_url

from mainspring import Cancel, Mainspring
from mainspring.core.run import MESSAGE_CHARS, Call, Report, Result, Status
from mainspring.core.transitions import conclude
from mainspring.core.waiting.gates import Limit
from mainspring.errors import RunCancelled, RunFailed
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.testing.conformance.helpers import add_run, claim, current, start, succeed
from tests.servers import MariaDB

SMALL = 256 * 1024
LARGE = random.Random(46).randbytes(600 * 1024)


@pytest.fixture
def small_packets(mariadb_server: MariaDB) -> Iterator[str]:
    """Have the server take statements of 256 KiB at most; return its address."""
    url = make_url(mariadb_server.url)
    with pymysql.connect(host=url.host, port=url.port or 0, user=url.username, autocommit=True) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@global.max_allowed_packet")
            [before] = cursor.fetchone() or [0]
            cursor.execute(f"SET GLOBAL max_allowed_packet = {SMALL}")
        yield mariadb_server.url
        with connection.cursor() as cursor:
            cursor.execute(f"SET GLOBAL max_allowed_packet = {before}")


def cancelled(store: JobStore, text: str) -> str | None:
    run = start(store)
    outcome = conclude(Report(run, Result.RAISED, exception=Cancel(text)), store.beat(), 0.5)
    assert store.settle([outcome]) == [True]
    return current(store, run).reason


def test_the_reason_of_a_cancel_is_cut() -> None:
    assert cancelled(MemoryJobStore(), "no time") == "no time"
    assert cancelled(MemoryJobStore(), "x" * 30_000_000) == "x" * MESSAGE_CHARS


def test_an_outcome_that_the_server_would_refuse_for_its_size_is_an_error_and_no_outage(small_packets: str) -> None:
    store = SQLAlchemyJobStore(small_packets, tablename="sizes_jobs")
    large, small = start(store), start(store)
    with pytest.raises(ValueError, match="max_allowed_packet"):
        store.settle([succeed(store, small, 1), succeed(store, large, LARGE)])
    assert store.settle([succeed(store, small, 1)]) == [True]
    assert current(store, large).status is Status.RUNNING
    store.shutdown()


def test_a_worker_writes_the_outcomes_beside_one_that_the_server_would_refuse_for_its_size(small_packets: str) -> None:
    app = Mainspring(small_packets, store_options={"tablename": "sizes_app_jobs"}, secret_key="a key for the tests 46")

    @app.task
    def large() -> bytes:
        return LARGE

    @app.task
    def small() -> int:
        return 1

    @app.task
    def wordy() -> None:
        raise Cancel("x" * 30_000_000)

    with app:
        app.start(work=True)
        handles = [large.enqueue(), small.enqueue(), wordy.enqueue()]
        with pytest.raises(RunFailed, match="max_allowed_packet"):
            handles[0].result(timeout=60)
        assert handles[1].result(timeout=60) == 1
        with pytest.raises(RunCancelled):
            handles[2].result(timeout=60)


@pytest.mark.parametrize("gate", [{}, {"gate": "crowd", "gate_spec": Limit(100).to_text()}], ids=["plain", "gated"])
def test_a_claim_may_hold_more_bytes_than_one_value_of_sqlite(tmp_path: Path, gate: dict[str, str]) -> None:
    store = SQLAlchemyJobStore(f"sqlite:///{tmp_path}/jobs.db")
    database: Any = store._open()
    database._writer.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2_000_000)
    runs = [add_run(store, call=Call("f", (LARGE,), {}), **gate) for _ in range(4)]
    claimed = claim(store)
    assert {run.id for run in claimed} == {run.id for run in runs}
    assert [run.call.args for run in claimed] == [(LARGE,)] * 4
    assert store.settle([succeed(store, run, LARGE) for run in claimed]) == [True] * 4
    store.shutdown()
