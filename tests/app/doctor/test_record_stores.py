"""The doctor on MongoDB, ZooKeeper, etcd and RethinkDB: what it says of a good one, and of one that cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from kazoo.client import KazooClient
from pymongo import MongoClient
from pymongo.errors import OperationFailure
from rethinkdb import RethinkDB
from rethinkdb.errors import ReqlAuthError, ReqlOpFailedError, ReqlPermissionError

from mainspring import Mainspring
from mainspring.app.insight.doctor import REACH, Diagnosis, Finding, Mark, diagnose
from mainspring.errors import OutcomeUnknown, StoreUnavailable
from mainspring.jobstores.etcd import EtcdClient
from mainspring.jobstores.etcd import records as etcd_records
from mainspring.jobstores.etcd.client import b64
from mainspring.jobstores.mongodb import server as mongodb_server
from mainspring.jobstores.rethinkdb.records import RethinkDBRecords
from mainspring.jobstores.zookeeper import records as zookeeper_records
from tests.servers import HOST

KEY = "a key of 32 bytes for the tests"
SERVERS = {"mongodb": "secantusdb", "zookeeper": "zookeeper", "etcd": "etcd", "rethinkdb": "reqlite"}
PICKLE = b"\x80\x04 as a pickle begins"
Look = Callable[[str], Diagnosis]

each = pytest.mark.parametrize("kind", SERVERS)


@pytest.fixture
def port(request: pytest.FixtureRequest, kind: str) -> int:
    return int(request.getfixturevalue(f"{SERVERS[kind]}_server").port)


@pytest.fixture
def look() -> Iterator[Look]:
    """Let the doctor look at a URL."""
    with ExitStack() as stack:

        def look(url: str) -> Diagnosis:
            options = {} if url.startswith("mongodb") else {"runs": "memory://"}
            app = Mainspring(url, timezone="UTC", secret_key=KEY, store_options=options)
            stack.callback(app.close)
            return diagnose(app)

        yield look


def problem(found: Diagnosis) -> Finding:
    [only] = [finding for finding in found.findings if finding.mark == Mark.PROBLEM]
    return only


@each
def test_a_good_store_has_no_problem(kind: str, port: int, look: Look) -> None:
    found = look(f"{kind}://{HOST}:{port}/doctor")
    assert found.ok
    assert found.findings[0].subject == "store"
    assert f"{kind}://{HOST}:{port}/doctor" in found.findings[0].text


@each
def test_a_server_that_is_away_is_named_without_the_password(
    kind: str, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_records, "TIMEOUT_SECONDS", 0.2)
    place = {
        "mongodb": f"ann:s3cret@{HOST}:1/db?serverSelectionTimeoutMS=50",
        "zookeeper": f"{HOST}:1/path?auth=digest:ann:s3cret",
    }
    found = look(f"{kind}://{place.get(kind, f'ann:s3cret@{HOST}:1/jobs')}")
    assert not found.reachable
    assert found.findings == (problem(found),)
    assert problem(found).advice == REACH
    assert f"{HOST}:1" in problem(found).text
    assert "refused" in problem(found).text
    assert "s3cret" not in str(found)


def put_strangers(kind: str, port: int) -> None:
    """Leave a job as APScheduler writes it."""
    if kind == "mongodb":
        client: MongoClient[dict[str, Any]]
        with MongoClient(HOST, port) as client:
            client["strangers"]["jobs"].replace_one({"_id": "their job"}, {"job_state": PICKLE}, upsert=True)
    elif kind == "zookeeper":
        keeper = KazooClient(hosts=f"{HOST}:{port}")
        keeper.start()
        keeper.create("/strangers/their job", PICKLE, makepath=True)
        keeper.stop()
        keeper.close()
    elif kind == "etcd":
        etcd = EtcdClient(port=port)
        etcd.call("kv/put", {"key": b64("/strangers/their job"), "value": b64(PICKLE)}, write=True)
        etcd.close()
    else:
        r = RethinkDB()
        connection = r.connect(host=HOST, port=port)
        r.db_create("strangers").run(connection)
        r.db("strangers").table_create("jobs").run(connection)
        r.db("strangers").table("jobs").insert({"id": "their job", "job_state": r.binary(PICKLE)}).run(connection)
        connection.close(noreply_wait=False)


@each
def test_jobs_of_apscheduler_are_named_with_the_command_that_takes_them_over(kind: str, port: int, look: Look) -> None:
    put_strangers(kind, port)
    text = problem(look(f"{kind}://{HOST}:{port}/strangers")).text
    assert "strangers" in text
    assert "holds jobs of APScheduler" in text
    assert "their job" in text
    assert "mainspring import" in text


@pytest.mark.parametrize("kind", ["mongodb", "zookeeper", "etcd"])
def test_an_old_server_is_named_with_the_version_that_is_needed(
    kind: str, port: int, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = {"mongodb": mongodb_server, "zookeeper": zookeeper_records, "etcd": etcd_records}[kind]
    monkeypatch.setattr(module, "OLDEST_VERSION" if kind == "mongodb" else "OLDEST", (99, 0))
    text = problem(look(f"{kind}://{HOST}:{port}/old")).text
    assert " is version " in text
    assert " 99.0 or newer" in text


def test_a_log_in_to_rethinkdb_that_fails_and_what_it_refuses_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in knows no users."""
    records = RethinkDBRecords("db", "jobs", None, {}, "rethinkdb://ann:s3cret@host/db")

    def refuse(**arguments: Any) -> None:
        raise ReqlAuthError("Wrong password", "host", 28015)

    monkeypatch.setattr(records.r, "connect", refuse)
    with pytest.raises(StoreUnavailable, match=r"refused the log-in: .*Wrong password; correct") as caught:
        records.all()
    assert "s3cret" not in str(caught.value)
    for error in (ReqlPermissionError("no rights"), ReqlOpFailedError("the primary replica is lost")):
        with pytest.raises(StoreUnavailable, match="refused a write") as caught, records.asked("write"):
            raise error
        assert not isinstance(caught.value, OutcomeUnknown)


def test_a_log_in_to_mongodb_that_fails_is_told_with_what_to_do() -> None:
    """The stand-in knows no users."""
    mongo = mongodb_server.MongoServer("db", "jobs", None, lambda: None, "mongodb://ann:s3cret@host/db")
    said = r"Authentication failed.*; correct .*authSource=admin"
    with pytest.raises(StoreUnavailable, match=said) as caught, mongo.asked("read"):
        raise OperationFailure("Authentication failed.", 18)
    assert "s3cret" not in str(caught.value)
