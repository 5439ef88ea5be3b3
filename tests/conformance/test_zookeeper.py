"""The suite with jobs in ZooKeeper and runs in memory; see `parts` for what of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from kazoo.client import KazooClient

from mainspring.jobstores.base import JobStore
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.zookeeper import ZooKeeperJobStore
from tests.conformance.test_split import SplitPart
from tests.servers import ZooKeeper

_numbers = count(1)


@pytest.fixture(scope="module")
def client(zookeeper_server: ZooKeeper) -> Iterator[KazooClient]:
    client = KazooClient(hosts=zookeeper_server.url.partition("//")[2])
    client.start()
    yield client
    client.stop()
    client.close()


class TestZooKeeper(SplitPart):
    @pytest.fixture
    def store(self, client: KazooClient) -> Iterator[JobStore]:
        store = ZooKeeperJobStore(f"/conformance/{next(_numbers)}", client=client, runs=MemoryJobStore())
        store.start(None, "default")
        yield store
        store.shutdown()
