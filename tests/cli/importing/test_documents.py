"""`mainspring import` from MongoDB and RethinkDB, as APScheduler 3 itself has filled stand-ins for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from apscheduler.jobstores.mongodb import MongoDBJobStore as TheirMongoStore
from apscheduler.jobstores.rethinkdb import RethinkDBJobStore as TheirRethinkStore
from pymongo import MongoClient

from tests.cli.importing.test_import import TRIGGERS, assert_same, call, every_trigger, first_line, stored, write
from tests.servers import HOST
from tests.stand_ins import Reqlite, SecantusDB


@pytest.fixture
def target(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


def test_jobs_come_from_mongodb_with_the_same_fire_times(secantusdb_server: SecantusDB, target: str) -> None:
    address = f"mongodb://{HOST}:{secantusdb_server.port}"
    client: MongoClient[dict[str, Any]]
    with MongoClient(address) as client:
        theirs = write(TheirMongoStore(client=client), every_trigger)
    with MongoClient(address) as client:
        before: list[Any] = list(client["apscheduler"]["jobs"].find())
        code, output = call(address, target, "--allow-pickle")
        assert (code, first_line(output)) == (0, f"{len(TRIGGERS)} jobs imported, unsigned")
        assert_same(theirs, stored(target))
        assert list(client["apscheduler"]["jobs"].find()) == before
        # And back, to a database of our own beside theirs.
        assert call(address, f"{address}/imported", "--allow-pickle")[0] == 0
        assert_same(theirs, stored(f"{address}/imported"))
        assert "has no collection" in call(f"{address}/nowhere", target, "--allow-pickle")[1]
        for name in ("apscheduler", "imported"):
            client.drop_database(name)


def test_jobs_come_from_rethinkdb_with_the_same_fire_times(reqlite_server: Reqlite, target: str) -> None:
    address = f"rethinkdb://{HOST}:{reqlite_server.port}"
    theirs = write(TheirRethinkStore(host=HOST, port=reqlite_server.port), every_trigger)
    code, output = call(address, target, "--allow-pickle")
    assert (code, first_line(output)) == (0, f"{len(TRIGGERS)} jobs imported, unsigned")
    assert_same(theirs, stored(target))
    assert "has no table" in call(f"{address}/nowhere", target, "--allow-pickle")[1]
