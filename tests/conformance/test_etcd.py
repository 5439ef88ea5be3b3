"""The suite with jobs in etcd and runs in memory; see `parts` for what of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from mainspring.jobstores.base import JobStore
from mainspring.jobstores.etcd import EtcdClient, EtcdJobStore
from mainspring.jobstores.memory import MemoryJobStore
from tests.conformance.test_split import SplitPart
from tests.servers import Etcd

_numbers = count(1)


@pytest.fixture(scope="module")
def client(etcd_server: Etcd) -> Iterator[EtcdClient]:
    client = EtcdClient(port=etcd_server.port)
    yield client
    client.close()


class TestEtcd(SplitPart):
    @pytest.fixture
    def store(self, client: EtcdClient) -> Iterator[JobStore]:
        store = EtcdJobStore(f"/conformance/{next(_numbers)}", client=client, runs=MemoryJobStore())
        store.start(None, "default")
        yield store
        store.shutdown()
