"""ZooKeeperJobStore as APScheduler's users know it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from apscheduler.jobstores.zookeeper import ZooKeeperJobStore as Theirs
from apscheduler.schedulers.background import BackgroundScheduler as TheirScheduler
from kazoo.client import KazooClient
from kazoo.retry import KazooRetry

from mainspring.errors import ConfigurationError, StoreUnavailable, TooManyJobs
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.zookeeper import ZooKeeperJobStore
from mainspring.jobstores.zookeeper import records as zookeeper_records
from mainspring.testing.conformance.helpers import add_job, make_job, work
from tests.process.split.stores_of_jobs import NOTHING, MannersOfStores
from tests.servers import HOST, ZooKeeper

_numbers = count(1)
shared_client: Any = None


class TestManners(MannersOfStores):
    kind = ZooKeeperJobStore
    alias = "zookeeper"

    @pytest.fixture
    def url(self, zookeeper_server: ZooKeeper) -> str:
        return zookeeper_server.url

    @pytest.fixture
    def arguments(self, zookeeper_server: ZooKeeper) -> dict[str, Any]:
        return {"hosts": f"{HOST}:{zookeeper_server.port}"}

    @pytest.fixture
    def path(self) -> str:
        return f"/manners/{next(_numbers)}"


@pytest.fixture
def client(zookeeper_server: ZooKeeper) -> Iterator[KazooClient]:
    client = KazooClient(hosts=f"{HOST}:{zookeeper_server.port}")
    yield client
    client.stop()
    client.close()


@pytest.mark.parametrize("closes", [False, True])
def test_a_client_that_was_given_is_closed_only_if_asked(client: KazooClient, closes: bool) -> None:
    store = ZooKeeperJobStore("/given", client=client, close_connection_on_exit=closes)
    store.start(None, "default")
    assert store.client is client
    assert client.connected
    store.shutdown()
    assert client.connected is not closes


def test_a_client_can_be_a_reference(client: KazooClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.shared_client", client)
    assert ZooKeeperJobStore(client=f"{__name__}:shared_client").client is client


def test_a_client_of_its_own_is_closed_in_any_case(zookeeper_server: ZooKeeper) -> None:
    store = ZooKeeperJobStore("/own", hosts=f"{HOST}:{zookeeper_server.port}")
    store.start(None, "default")
    client = store.client
    store.shutdown()
    assert not client.connected


def test_it_does_not_open_what_apscheduler_wrote(client: KazooClient) -> None:
    theirs = TheirScheduler(jobstores={"default": Theirs("/theirs", client=client)}, timezone="UTC")
    theirs.start(paused=True)
    theirs.add_job(work, "date", run_date=NOTHING, id="one")
    store = ZooKeeperJobStore("/theirs", client=client)
    with pytest.raises(ConfigurationError, match=r"holds jobs of APScheduler .*mainspring import"):
        store.start(None, "default")
    with pytest.raises(ConfigurationError):
        store.get_all_jobs()
    theirs.shutdown()


def test_it_needs_the_right_to_create(client: KazooClient, zookeeper_server: ZooKeeper) -> None:
    place = f"zookeeper://{HOST}:{zookeeper_server.port}/private"
    owner = ZooKeeperJobStore(url=f"{place}?auth=digest:ann:secret", runs=MemoryJobStore())
    owner.start(None, "default")
    add_job(owner, "job")
    stranger = ZooKeeperJobStore(url=place, runs=MemoryJobStore())
    for use in (stranger.get_all_jobs, lambda: stranger.start(None, "default")):
        with pytest.raises(ConfigurationError, match=r"read and write /private; .*auth=digest:user:password"):
            use()
    assert [job.id for job in owner.get_all_jobs()] == ["job"]
    owner.shutdown()
    stranger.shutdown()


def test_a_user_before_the_hosts_is_told_where_it_belongs() -> None:
    with pytest.raises(ConfigurationError, match=r"write \?auth=digest:user:password"):
        ZooKeeperJobStore(url="zookeeper://ann:secret@host/path")


def test_names_that_would_not_fit_into_one_answer_are_refused(
    client: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_records, "MOST_NAME_BYTES", 500)
    store = ZooKeeperJobStore("/names", client=client, runs=MemoryJobStore())
    with pytest.raises(TooManyJobs, match="takes 500 bytes of job ids"):
        store.add_jobs([make_job(store, f"{'ö' * 20}{number}") for number in range(5)])
    assert store.get_all_jobs() == []
    store.shutdown()


def test_its_health_says_what_survives(client: KazooClient, zookeeper_server: ZooKeeper) -> None:
    health = ZooKeeperJobStore("/health", client=client).jobs.health()
    assert (health.level, health.version) == ("durable", f"ZooKeeper {zookeeper_server.version}")
    assert health.reasons[0].startswith("the only server has each write on disk before it is acknowledged")
    assert health.warnings == ()


def test_a_record_that_was_altered_is_set_aside(client: KazooClient) -> None:
    store = ZooKeeperJobStore("/altered", client=client, runs=MemoryJobStore())
    add_job(store, "good")
    add_job(store, "bad")
    client.set("/altered/jobs/job%3Abad", b"what is this?")
    assert [due.job.id for due in store.due(10, 0).jobs] == ["good"]
    assert [(broken.id, broken.payload) for broken in store.get_jobs(broken=True).broken] == [("bad", b"what is this?")]
    store.shutdown()


def test_it_connects_again_soon_after_however_long_an_outage() -> None:
    assert ZooKeeperJobStore("/often", hosts=f"{HOST}:1").client._conn_retry.max_delay == 1.0
    own = KazooRetry(max_tries=3, max_delay=30.0)
    assert ZooKeeperJobStore("/own", hosts=f"{HOST}:1", connection_retry=own).client._conn_retry.max_delay == 30.0


def test_a_server_that_is_not_there_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_records, "TIMEOUT_SECONDS", 0.3)
    store = ZooKeeperJobStore("/away", hosts=f"{HOST}:1", runs=MemoryJobStore())
    with pytest.raises(StoreUnavailable, match=rf"ZooKeeper at {HOST}:1"):
        store.start(None, "default")
    store.shutdown()
