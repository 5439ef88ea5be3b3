"""EtcdJobStore as APScheduler's users know it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from mainspring.errors import ConfigurationError, StoreUnavailable
from mainspring.jobstores.etcd import EtcdClient, EtcdJobStore
from mainspring.jobstores.etcd.client import b64
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.testing.conformance.helpers import add_job
from tests.process.split.stores_of_jobs import MannersOfStores
from tests.servers import HOST, Etcd

_numbers = count(1)
shared_client: Any = None


class TestManners(MannersOfStores):
    kind = EtcdJobStore
    alias = "etcd"

    @pytest.fixture
    def url(self, etcd_server: Etcd) -> str:
        return etcd_server.url

    @pytest.fixture
    def arguments(self, etcd_server: Etcd) -> dict[str, Any]:
        return {"host": HOST, "port": etcd_server.port}

    @pytest.fixture
    def path(self) -> str:
        return f"/manners/{next(_numbers)}"


@pytest.fixture
def client(etcd_server: Etcd) -> Iterator[EtcdClient]:
    client = EtcdClient(port=etcd_server.port)
    yield client
    client.close()


@pytest.mark.parametrize("closes", [False, True])
def test_a_client_that_was_given_is_closed_only_if_asked(client: EtcdClient, closes: bool) -> None:
    store = EtcdJobStore("/given", client=client, close_connection_on_exit=closes)
    store.start(None, "default")
    store.shutdown()
    assert (client._idle == []) is closes


def test_a_client_can_be_a_reference(client: EtcdClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.shared_client", client)
    assert EtcdJobStore(client=f"{__name__}:shared_client").client is client


def test_any_object_that_can_ask_is_a_client(client: EtcdClient) -> None:
    class Asking:
        def call(self, verb: str, body: dict[str, Any], *, write: bool = False) -> dict[str, Any]:
            return client.call(verb, body, write=write)

    store = EtcdJobStore("/asking", client=Asking(), runs=MemoryJobStore())
    store.start(None, "default")
    add_job(store, "job")
    assert store.remove_jobs() == 1
    store.shutdown()


def test_a_client_of_etcd3_is_refused_with_what_to_do() -> None:
    class Etcd3Client:
        """Has no `call`."""

    with pytest.raises(ConfigurationError, match="a client of the package etcd3 cannot be used"):
        EtcdJobStore(client=Etcd3Client())


def test_it_does_not_open_what_apscheduler_wrote(client: EtcdClient) -> None:
    client.call("kv/put", {"key": b64("/theirs/one"), "value": b64(b"\x80\x04 as a pickle begins")}, write=True)
    store = EtcdJobStore("/theirs", client=client)
    with pytest.raises(ConfigurationError, match=r"holds jobs of APScheduler .*mainspring import"):
        store.start(None, "default")
    with pytest.raises(ConfigurationError):
        store.get_all_jobs()


def test_its_health_says_what_survives(client: EtcdClient, etcd_server: Etcd) -> None:
    health = EtcdJobStore("/health", client=client).jobs.health()
    assert (health.level, health.version) == ("durable", f"etcd {etcd_server.version}")
    assert health.reasons == ("the only member has each write on disk before it is acknowledged",)
    assert health.warnings == ()


def test_a_record_that_was_altered_is_set_aside(client: EtcdClient) -> None:
    store = EtcdJobStore("/altered", client=client, runs=MemoryJobStore())
    add_job(store, "good")
    add_job(store, "bad")
    client.call("kv/put", {"key": b64("/altered/jobs/job:bad"), "value": b64(b"what is this?")}, write=True)
    assert [job.id for job in store.get_all_jobs()] == ["good"]
    assert [(broken.id, broken.payload) for broken in store.get_jobs(broken=True).broken] == [("bad", b"what is this?")]
    assert [due.job.id for due in store.due(10, 0).jobs] == ["good"]
    store.remove_jobs()
    store.shutdown()


def test_a_member_that_is_not_there_is_passed_over(etcd_server: Etcd) -> None:
    endpoints = [f"http://{HOST}:1", etcd_server.endpoint]
    store = EtcdJobStore("/members", endpoints=endpoints, runs=MemoryJobStore())
    add_job(store, "job")
    assert store.remove_jobs() == 1
    store.shutdown()


def test_a_server_that_is_not_there_is_unavailable_and_no_password_is_shown() -> None:
    store = EtcdJobStore(url=f"etcd://ann:secret@{HOST}:1/away", runs=MemoryJobStore())
    with pytest.raises(StoreUnavailable, match=rf"no member of <EtcdClient http://{HOST}:1>") as caught:
        store.start(None, "default")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("endpoints", ["http://host:2379", ["host:2379"]])
def test_endpoints_are_a_list_of_urls(endpoints: Any) -> None:
    with pytest.raises(ConfigurationError, match="endpoints"):
        EtcdJobStore(endpoints=endpoints)
