"""The whole suite on a stand-in for MongoDB: jobs and runs in one database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient

from mainspring.jobstores.base import JobStore
from mainspring.jobstores.mongodb import MongoDBJobStore
from mainspring.testing.conformance import StoreConformance
from tests.stand_ins import SecantusDB

COLLECTIONS = ("jobs", "jobs_runs", "jobs_facts", "jobs_gone")


@pytest.fixture(scope="module")
def client(secantusdb_server: SecantusDB) -> Iterator[MongoClient[dict[str, Any]]]:
    with MongoClient(secantusdb_server.url) as client:
        yield client


class TestMongoDB(StoreConformance):
    @pytest.fixture
    def store(self, client: MongoClient[dict[str, Any]]) -> Iterator[JobStore]:
        store = MongoDBJobStore("conformance", client=client)
        store.start(None, "default")
        yield store
        store.shutdown()
        for name in COLLECTIONS:
            client["conformance"][name].delete_many({})
