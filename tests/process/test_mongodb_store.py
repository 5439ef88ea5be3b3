"""The MongoDB store on a stand-in: opening it, what it refuses, forks, killed servers, cut connections."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from apscheduler.jobstores.mongodb import MongoDBJobStore as TheirStore
from apscheduler.schedulers.background import BackgroundScheduler as TheirScheduler
from pymongo import MongoClient

from mainspring import Mainspring
from mainspring.core.run import Call, Status
from mainspring.errors import ConfigurationError, RecordTooLarge, StoreUnavailable
from mainspring.jobstores.base import ENDS, RUNS_STEP, RunQuery
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.mongodb import MongoDBJobStore
from mainspring.jobstores.opening import open_store
from mainspring.testing.conformance.helpers import (
    add_job,
    add_run,
    claim,
    current,
    make_run,
    settle,
    start,
    succeed,
    work,
)
from tests.chaos.proxy import Proxy
from tests.process.fire_crowd import fire_through
from tests.servers import HOST, Server
from tests.stand_ins import SecantusDB

their_client: Any = None


@pytest.fixture
def client(secantusdb_server: SecantusDB) -> Iterator[MongoClient[dict[str, Any]]]:
    client: MongoClient[dict[str, Any]] = MongoClient(secantusdb_server.url)
    yield client
    client.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of a database for one test."""
    return f"t{abs(hash(request.node.name)) % 10**9}"


@pytest.fixture
def store(client: MongoClient[dict[str, Any]], name: str) -> Iterator[MongoDBJobStore]:
    store = MongoDBJobStore(name, client=client)
    store.start(None, "default")
    yield store
    store.shutdown()
    client.drop_database(name)


# -- as APScheduler has it ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", ["database", "collection"])
def test_a_name_must_not_be_empty(empty: str) -> None:
    with pytest.raises(ValueError, match=f'The "{empty}" parameter must not be empty'):
        MongoDBJobStore(**{empty: ""})  # type: ignore[arg-type]


def test_a_client_may_be_named_by_a_reference(client: MongoClient[dict[str, Any]]) -> None:
    global their_client
    their_client = client
    try:
        assert MongoDBJobStore(client=f"{__name__}:their_client").client is client
    finally:
        their_client = None


def test_the_constructor_takes_what_apschedulers_takes(store: MongoDBJobStore, secantusdb_server: SecantusDB) -> None:
    assert repr(store).startswith("<MongoDBJobStore (client=MongoClient(")
    assert store.collection.name == "jobs"
    other = MongoDBJobStore("db", "mine", None, 4, host=HOST, port=secantusdb_server.port)
    assert (other.collection.database.name, other.collection.name) == ("db", "mine")
    other.client.drop_database("db")
    other.shutdown()


def test_a_store_is_not_pickled(store: MongoDBJobStore) -> None:
    with pytest.raises(TypeError, match="make one in each process"):
        pickle.dumps(store)


def test_our_own_client_is_closed_and_one_that_was_given_is_not(
    client: MongoClient[dict[str, Any]], secantusdb_server: SecantusDB, name: str
) -> None:
    given = MongoDBJobStore(name, client=client)
    given.start(None, "default")
    given.shutdown()
    assert client.admin.command("ping")
    own = open_store(secantusdb_server.url)
    own.start(None, "default")
    assert isinstance(own, MongoDBJobStore)
    mine = own.client
    own.shutdown()
    with pytest.raises(Exception, match=r"(?i)close"):
        mine.admin.command("ping")
    own.start(None, "default")  # and it can be opened again
    assert own.beat()
    own.shutdown()


# -- what it refuses ---------------------------------------------------------------------------------------------


def test_a_collection_that_apscheduler_wrote_is_left_alone(client: MongoClient[dict[str, Any]], name: str) -> None:
    theirs = TheirScheduler(jobstores={"default": TheirStore(name, client=client)})
    theirs.add_job(print, "date", run_date=datetime.now(UTC) + timedelta(days=1), id="their job")
    theirs.start(paused=True)
    before = list(client[name]["jobs"].find())
    store = MongoDBJobStore(name, client=client)
    for use in (lambda: store.start(None, "default"), store.get_all_jobs):
        with pytest.raises(ConfigurationError, match=r"their job.*mainspring import"):
            use()
    assert list(client[name]["jobs"].find()) == before
    client.drop_database(name)


def test_writes_must_be_acknowledged(secantusdb_server: SecantusDB) -> None:
    store = open_store(f"{secantusdb_server.url}?w=0")
    with pytest.raises(ConfigurationError, match="w=0"):
        store.start(None, "default")
    store.shutdown()


def test_what_a_newer_mainspring_wrote_is_left_alone(store: MongoDBJobStore, name: str) -> None:
    store.client[name]["jobs_facts"].update_one({"_id": "schema"}, {"$set": {"n": 2}})
    with pytest.raises(ConfigurationError, match="schema 2"):
        MongoDBJobStore(name, client=store.client).start(None, "default")


def test_a_job_that_is_too_large_is_refused(store: MongoDBJobStore) -> None:
    store.jobs.max_bytes = 1000  # type: ignore[misc]
    with pytest.raises(RecordTooLarge, match="1,000"):
        add_job(store, call=Call(work, (os.urandom(2000),), name="work"))


def test_a_server_that_is_not_there_is_reported_without_the_password() -> None:
    store = open_store("mongodb://me:secret@127.0.0.1:1/db?serverSelectionTimeoutMS=50")
    with pytest.raises(StoreUnavailable) as raised:
        store.start(None, "default")
    assert "secret" not in str(raised.value)
    assert "127.0.0.1:1" in str(raised.value)
    assert "secret" not in repr(store)
    store.shutdown()


# -- what it says ------------------------------------------------------------------------------------------------


def test_the_database_comes_from_the_url() -> None:
    names = {}
    for path in ("", "/", "/shop", "/shop?w=1"):
        store = open_store(f"mongodb://127.0.0.1:1{path}")
        assert isinstance(store, MongoDBJobStore)
        names[path] = store.mongo.database, store.mongo.collection
    assert names == {
        "": ("mainspring", "jobs"),
        "/": ("mainspring", "jobs"),
        "/shop": ("shop", "jobs"),
        "/shop?w=1": ("shop", "jobs"),
    }


def test_its_health_tells_what_survives(store: MongoDBJobStore, secantusdb_server: SecantusDB) -> None:
    health = store.health()
    assert (health.level, health.version) == ("durable", "MongoDB 8.2.11")
    assert "one member" in health.reasons[0]
    weak = open_store(f"{secantusdb_server.url}?w=1")
    assert weak.health().level == "volatile"
    assert "w=1" in weak.health().reasons[0]
    weak.shutdown()


def test_time_is_the_servers_and_never_goes_back(store: MongoDBJobStore) -> None:
    times = [store.beat() for _ in range(200)]
    assert times == sorted(times)
    assert abs(times[-1] - time.time_ns() // 1000) < 5_000_000


def test_another_node_wakes_when_work_comes(
    store: MongoDBJobStore, client: MongoClient[dict[str, Any]], name: str
) -> None:
    other = MongoDBJobStore(name, client=client)
    cursor = other.wait(0, 0)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:  # the stream opens in the background
        add_run(store)
        seen = other.wait(cursor, 1.0)
        if seen != cursor:
            break
    assert seen != cursor
    other.shutdown()


def test_each_topic_wakes_only_who_waits_for_it(
    store: MongoDBJobStore, client: MongoClient[dict[str, Any]], name: str
) -> None:
    other = MongoDBJobStore(name, client=client)
    run, limited = start(store), start(store, queue="limited")
    first = other.wait(0, 0, ENDS)
    ends = other.wait(first, 60, ENDS)
    assert ends != first  # the stream is open
    changes = other.runs.wait(0, 0)
    settle(store, succeed(store, run))
    assert other.wait(ends, 60, ENDS) == ends + 1
    assert other.runs.wait(changes, 0) == changes
    add_run(store, queue="unserved")
    assert other.runs.wait(changes, 60) == changes + RUNS_STEP
    assert other.wait(ends + 1, 0, ENDS) == ends + 1
    store.set_gate("queue:limited", 1)
    claim(other, "limited")  # it finds the queue full
    changes = other.runs.wait(0, 0)
    settle(store, succeed(store, limited))
    assert other.runs.wait(changes, 60) == changes + RUNS_STEP
    other.shutdown()


# -- work --------------------------------------------------------------------------------------------------------


def test_an_app_runs_a_flow(secantusdb_server: SecantusDB) -> None:
    with Mainspring(secantusdb_server.url, name="flow", secret_key="k" * 32) as app:

        @app.task
        def add(a: int, b: int) -> int:
            return a + b

        app.start(work=True)
        first = add.enqueue(1, 2)
        assert add.enqueue(first.output, 10).result(timeout=60) == 13
    client: MongoClient[dict[str, Any]]
    with MongoClient(secantusdb_server.url) as client:
        names = client["mainspring"].list_collection_names()
        assert {"flow_jobs", "flow_jobs_runs"} <= set(names)


def test_a_forked_child_has_a_client_of_its_own(secantusdb_server: SecantusDB) -> None:
    store = open_store(f"{secantusdb_server.url}_fork")
    store.start(None, "default")
    run = add_run(store)
    pid = os.fork()
    if not pid:  # pragma: no cover - in the child
        try:
            os._exit(0 if claim(store)[0].id == run.id else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert current(store, run).status is Status.RUNNING
    store.shutdown()


def test_a_server_that_is_killed_while_jobs_fire_loses_and_doubles_none(
    start_server: Callable[[type[Server]], Server],
) -> None:
    server = start_server(SecantusDB)

    def make(runs: MemoryJobStore) -> MongoDBJobStore:
        return MongoDBJobStore(url=server.url, runs=runs)

    fire_through(make, server.restart, rounds=1, jobs=12)


def test_runs_survive_connections_that_are_cut(secantusdb_server: SecantusDB, name: str) -> None:
    """Nodes add, claim and end runs while the network fails: each run that was promised ends well, once."""
    proxy = Proxy(secantusdb_server.port)
    options = "directConnection=true&serverSelectionTimeoutMS=1000&socketTimeoutMS=1000&connectTimeoutMS=1000"
    stores = [open_store(f"mongodb://{HOST}:{proxy.port}/{name}?{options}") for _ in range(2)]
    watcher = open_store(f"mongodb://{HOST}:{secantusdb_server.port}/{name}")
    watcher.start(None, "default")
    runs = [make_run(watcher, f"r{number:02}") for number in range(16)]
    ended: Counter[str] = Counter()
    over = threading.Event()

    def work(number: int) -> None:
        store, token, mine = stores[number], 0, runs[number::2]
        while not over.is_set():
            try:
                if mine:
                    store.add_runs(mine[:3])
                    mine = mine[3:]
                for run in claim(store, limit=3, token=f"{number}:{token}", lease=600.0):
                    ended[run.id] += store.settle([succeed(store, run)])[0]
                token += 1  # until then, a claim that is repeated gives the same runs
            except StoreUnavailable:
                over.wait(0.05)

    threads = [threading.Thread(target=work, args=[number]) for number in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        time.sleep(0.3)  # anywhere in the middle of the work
        proxy.cut("refuse")
        time.sleep(0.2)
        proxy.mend()
    deadline = time.monotonic() + 100
    while watcher.stats(RunQuery(status=(Status.SUCCEEDED,))).matching < len(runs) and time.monotonic() < deadline:
        time.sleep(0.1)
    over.set()
    for thread in threads:
        thread.join()
    found = watcher.get_runs([run.id for run in runs])
    assert {run.status if run else None for run in found} == {Status.SUCCEEDED}
    assert max(ended.values()) == 1
    assert watcher.stats().totals["succeeded"] <= len(runs)
    for store in (*stores, watcher):
        store.shutdown()
    proxy.close()
