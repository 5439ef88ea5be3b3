"""The suite on a stand-in for MongoDB, which keeps jobs and runs in one database.

The stand-in needs several milliseconds for each document that it writes, so this runs a part of the suite: how runs
settle, come after each other and pass gates, how counts add up, and how jobs fire. All of it runs with
`MAINSPRING_MONGODB=whole`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient

from mainspring.jobstores.base import JobStore
from mainspring.jobstores.mongodb import MongoDBJobStore
from mainspring.testing.conformance import (
    ChangeConformance,
    EdgeUpkeepConformance,
    FiringConformance,
    GateConformance,
    QueueLimitConformance,
    RateConformance,
    SendBackConformance,
    SettleConformance,
    StoreConformance,
    TallyConformance,
)
from tests.stand_ins import SecantusDB

COLLECTIONS = ("jobs", "jobs_runs", "jobs_facts", "jobs_gone")


@pytest.fixture(scope="module")
def client(secantusdb_server: SecantusDB) -> Iterator[MongoClient[dict[str, Any]]]:
    client: MongoClient[dict[str, Any]] = MongoClient(secantusdb_server.url)
    yield client
    client.close()


class ChosenConformance(
    FiringConformance,
    SettleConformance,
    ChangeConformance,
    EdgeUpkeepConformance,
    SendBackConformance,
    GateConformance,
    RateConformance,
    QueueLimitConformance,
    TallyConformance,
):
    """What is particular to runs in records, without the slowest tests."""

    test_however_many_claim_at_once_no_more_run_and_none_is_left = None  # type: ignore[assignment]
    test_a_claim_that_parks_while_the_holder_ends_loses_no_one = None  # type: ignore[assignment]
    test_a_stretch_has_a_limited_number_of_names = None  # type: ignore[assignment]


WHOLE = os.environ.get("MAINSPRING_MONGODB") == "whole"


class TestMongoDB(StoreConformance if WHOLE else ChosenConformance):  # type: ignore[misc]
    @pytest.fixture
    def store(self, client: MongoClient[dict[str, Any]]) -> Iterator[JobStore]:
        store = MongoDBJobStore("conformance", client=client)
        store.start(None, "default")
        yield store
        store.shutdown()
        for name in COLLECTIONS:
            client["conformance"][name].delete_many({})
