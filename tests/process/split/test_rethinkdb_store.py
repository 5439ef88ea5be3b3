"""The RethinkDB store on a stand-in: opening it, what it refuses, forks, changes, cut connections."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from apscheduler.jobstores.rethinkdb import RethinkDBJobStore as TheirStore
from apscheduler.schedulers.background import BackgroundScheduler as TheirScheduler

from mainspring.errors import ConfigurationError, StoreUnavailable
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.opening import open_store
from mainspring.jobstores.rethinkdb import RethinkDBJobStore
from mainspring.testing.conformance.helpers import add_job
from tests.chaos.proxy import Proxy
from tests.process.fire_crowd import fire_through
from tests.servers import HOST
from tests.stand_ins import Reqlite

_numbers = count(1)
their_connection: Any = None


@pytest.fixture
def table() -> str:
    """The name of a table for one test."""
    return f"jobs{next(_numbers)}"


@pytest.fixture
def store(reqlite_server: Reqlite, table: str) -> Iterator[RethinkDBJobStore]:
    store = RethinkDBJobStore("tests", table, host=HOST, port=reqlite_server.port, runs=MemoryJobStore())
    store.start(None, "default")
    yield store
    store.shutdown()


@pytest.mark.parametrize("empty", ["database", "table"])
def test_a_name_must_not_be_empty(empty: str) -> None:
    with pytest.raises(ValueError, match=f'The "{empty}" parameter must not be empty'):
        RethinkDBJobStore(**{empty: ""})  # type: ignore[arg-type]


def test_a_connection_may_be_named_by_a_reference_and_stays_open(store: RethinkDBJobStore, table: str) -> None:
    global their_connection
    their_connection = store.r.connect(host=HOST, port=store.jobs.connect_args["port"])
    try:
        other = RethinkDBJobStore("tests", table, f"{__name__}:their_connection", runs=store.runs)
        other.start(None, "other")
        add_job(store, "seen by both")
        assert other.conn is their_connection
        assert repr(other).startswith("<RethinkDBJobStore (connection=<")
        assert [job.id for job in other.get_all_jobs()] == ["seen by both"]
        other.shutdown()
        assert their_connection.is_open()
    finally:
        their_connection.close(noreply_wait=False)
        their_connection = None


def test_a_table_that_apscheduler_wrote_is_left_alone(reqlite_server: Reqlite, table: str) -> None:
    place: dict[str, Any] = {"host": HOST, "port": reqlite_server.port}
    theirs = TheirScheduler(jobstores={"default": TheirStore("tests", table, **place)})
    theirs.add_job(print, "date", run_date=datetime.now(UTC) + timedelta(days=1), id="their job")
    theirs.start(paused=True)
    store = RethinkDBJobStore("tests", table, **place)
    for use in (lambda: store.start(None, "default"), store.get_all_jobs):
        with pytest.raises(ConfigurationError, match=r"their job.*mainspring import"):
            use()
    store.shutdown()
    theirs.shutdown()


def test_a_url_names_the_server_and_the_database() -> None:
    store = open_store("rethinkdb://me:p%40ss@127.0.0.1:1/shop", runs=MemoryJobStore())
    assert isinstance(store, RethinkDBJobStore)
    assert store.jobs.connect_args == {
        "timeout": 5, "host": "127.0.0.1", "port": 1, "user": "me", "password": "p@ss",
    }  # fmt: skip
    assert store.jobs.database == "shop"
    with pytest.raises(StoreUnavailable) as raised:
        store.start(None, "default")
    assert "p%40ss" not in str(raised.value)
    assert "p@ss" not in repr(store)
    with pytest.raises(ConfigurationError, match="has no option 'sorry'"):
        open_store("rethinkdb://127.0.0.1/shop?sorry=1")
    split = open_store("rethinkdb://127.0.0.1/shop?runs=memory://")
    assert isinstance(split, RethinkDBJobStore)
    assert isinstance(split.runs, MemoryJobStore)


def test_another_node_wakes_when_a_job_comes(store: RethinkDBJobStore, table: str) -> None:
    other = RethinkDBJobStore("tests", table, host=HOST, port=store.jobs.connect_args["port"], runs=MemoryJobStore())
    cursor = seen = other.jobs.wait(0, 0)
    deadline = time.monotonic() + 60
    while seen == cursor and time.monotonic() < deadline:  # the feed opens in the background
        add_job(store, f"job {time.monotonic()}")
        seen = other.jobs.wait(cursor, 1.0)
    assert seen != cursor
    other.shutdown()


def test_a_forked_child_has_connections_of_its_own(store: RethinkDBJobStore) -> None:
    add_job(store, "before")
    pid = os.fork()
    if not pid:  # pragma: no cover - in the child
        try:
            add_job(store, "child's")
            os._exit(0)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert {job.id for job in store.get_all_jobs()} == {"before", "child's"}


# The driver leaves the socket of a connection that broke to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_connections_that_are_cut_lose_and_double_no_fire(reqlite_server: Reqlite, table: str) -> None:
    proxy = Proxy(reqlite_server.port)

    def hurt() -> None:
        proxy.cut("refuse")
        time.sleep(0.2)
        proxy.mend()

    def make(runs: MemoryJobStore) -> RethinkDBJobStore:
        return RethinkDBJobStore("tests", table, host=HOST, port=proxy.port, runs=runs)

    try:
        fire_through(make, hurt, rounds=2, jobs=12)
    finally:
        proxy.close()
