"""Jobs in ZooKeeper while its server dies, its sessions expire, and the network fails."""

from __future__ import annotations

import gc
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

from mainspring.errors import StoreUnavailable
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.zookeeper import ZooKeeperJobStore
from mainspring.jobstores.zookeeper import records as zookeeper_records
from mainspring.testing.conformance.helpers import add_job, make_job
from tests.chaos.proxy import Proxy
from tests.process.fire_crowd import fire_through
from tests.servers import HOST, Server, ZooKeeper
from tests.zookeeper_fleet import SecureZooKeeper, ZooKeeperTrio


@pytest.fixture
def store(zookeeper_server: ZooKeeper, request: pytest.FixtureRequest) -> Iterator[ZooKeeperJobStore]:
    store = ZooKeeperJobStore(f"/{request.node.name}", hosts=f"{HOST}:{zookeeper_server.port}", runs=MemoryJobStore())
    store.start(None, "default")
    yield store
    store.shutdown()


def test_a_server_that_is_killed_while_jobs_fire_loses_and_doubles_none(
    start_server: Callable[[type[Server]], Server],
) -> None:
    server = start_server(ZooKeeper)

    def make(runs: MemoryJobStore) -> ZooKeeperJobStore:
        return ZooKeeperJobStore("/kills", hosts=f"{HOST}:{server.port}", runs=runs)

    fire_through(make, server.restart, rounds=2)


def test_a_leader_that_is_lost_while_jobs_fire_loses_and_doubles_none(zookeeper_server: ZooKeeper) -> None:
    with ZooKeeperTrio() as trio:

        def make(runs: MemoryJobStore) -> ZooKeeperJobStore:
            return ZooKeeperJobStore("/kills", hosts=trio.hosts, runs=runs)

        def hurt() -> None:
            trio.leader().kill()
            trio.leader()

        fire_through(make, hurt, rounds=1)
        store = make(MemoryJobStore())
        health = store.jobs.health()
        store.shutdown()
    assert health.level == "replicated(1)"
    assert health.reasons[0].startswith("2 of 3 servers have each write on disk before it is acknowledged")


def test_sessions_that_expire_while_jobs_fire_lose_and_double_none(zookeeper_server: ZooKeeper) -> None:
    stores: list[ZooKeeperJobStore] = []
    hosts = f"{HOST}:{zookeeper_server.port}"

    def make(runs: MemoryJobStore) -> ZooKeeperJobStore:
        stores.append(ZooKeeperJobStore("/expired", hosts=hosts, runs=runs))
        return stores[-1]

    def hurt() -> None:
        for store in stores:
            expire(store, hosts)

    fire_through(make, hurt, rounds=2)


def expire(store: ZooKeeperJobStore, hosts: str) -> None:
    """Take over the session of a store and end it: it expires for its owner."""
    thief = KazooClient(hosts=hosts, client_id=store.client.client_id)
    thief.start()
    thief.stop()
    thief.close()


@pytest.mark.parametrize("mode", ["refuse", "mute"])
def test_connections_that_are_cut_lose_and_double_no_fire(
    zookeeper_server: ZooKeeper, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_records, "TIMEOUT_SECONDS", 2.0)
    proxy = Proxy(zookeeper_server.port)

    def hurt() -> None:
        proxy.cut(mode)  # type: ignore[arg-type]
        time.sleep(0.3)
        proxy.mend()

    def make(runs: MemoryJobStore) -> ZooKeeperJobStore:
        return ZooKeeperJobStore(f"/cut-{mode}", hosts=f"{HOST}:{proxy.port}", runs=runs, timeout=2.0)

    try:
        fire_through(make, hurt, rounds=2)
    finally:
        proxy.close()


def test_an_expired_session_costs_only_its_watches(store: ZooKeeperJobStore, zookeeper_server: ZooKeeper) -> None:
    add_job(store, "before")
    cursor = store.jobs.wait(0, 0)
    states: list[str] = []
    lost = threading.Event()

    def note(state: str) -> None:
        states.append(state)
        if "LOST" in states and state == "CONNECTED":
            lost.set()

    store.client.add_listener(note)
    expire(store, f"{HOST}:{zookeeper_server.port}")
    assert lost.wait(30)
    add_job(store, "after")
    assert store.jobs.wait(cursor, 30) != cursor
    assert {job.id for job in store.get_all_jobs()} == {"before", "after"}
    # And it is woken by others again.
    other = ZooKeeperJobStore(store.path, hosts=f"{HOST}:{zookeeper_server.port}", runs=MemoryJobStore())
    cursor = _at_rest(store)
    other.add_jobs([make_job(other, "of another")])
    assert store.jobs.wait(cursor, 30) != cursor
    other.shutdown()


def _at_rest(store: ZooKeeperJobStore) -> int:
    cursor = store.jobs.wait(0, 0)
    while (later := store.jobs.wait(cursor, 0.2)) != cursor:
        cursor = later
    return cursor


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_after_a_fork_the_child_has_a_client_of_its_own(store: ZooKeeperJobStore) -> None:
    add_job(store, "job")
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, ",".join(job.id for job in store.get_all_jobs()).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"job"
    os.close(reading)
    os.close(writing)
    assert [job.id for job in store.get_all_jobs()] == ["job"]


def test_a_record_that_is_made_anew_is_not_taken_for_the_one_that_was_seen(store: ZooKeeperJobStore) -> None:
    add_job(store, "job")
    [seen] = store.jobs.all()
    store.remove_job("job")
    new = add_job(store, "job")
    record = store.jobs.all()[0]
    assert store.jobs.delete([seen]) == [False]
    assert store.jobs.put([(record, seen)]) == [False]
    assert store.jobs.all()[0].version == new.version


def test_a_store_that_is_opened_while_its_server_is_away_works_when_it_is_back(
    start_server: Callable[[type[Server]], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_records, "TIMEOUT_SECONDS", 0.5)
    server = start_server(ZooKeeper)
    server.kill()
    store = ZooKeeperJobStore("/later", hosts=f"{HOST}:{server.port}", runs=MemoryJobStore())
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            store.get_all_jobs()
    server.restart()
    monkeypatch.undo()
    add_job(store, "job")
    assert [job.id for job in store.get_all_jobs()] == ["job"]
    store.shutdown()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # kazoo leaves refused sockets open
def test_a_server_with_tls(start_server: Callable[[type[Server]], Server], monkeypatch: pytest.MonkeyPatch) -> None:
    server = start_server(SecureZooKeeper)
    place, files = f"zookeeper://{HOST}:{server.port}/secure?tls=1", server.directory
    store = ZooKeeperJobStore(
        url=f"{place}&ca={files}/ca.pem&cert={files}/cert.pem&key={files}/key.pem", runs=MemoryJobStore()
    )
    store.start(None, "default")
    add_job(store, "job")
    assert [job.id for job in store.get_all_jobs()] == ["job"]
    assert store.jobs.health().version == f"ZooKeeper {server.version}"
    store.shutdown()
    monkeypatch.setattr(zookeeper_records, "TIMEOUT_SECONDS", 0.3)
    for more, said in (("", "VERIFY_FAILED.* ca="), (f"&ca={files}/ca.pem", "cert= and key=")):
        stranger = ZooKeeperJobStore(url=place + more, runs=MemoryJobStore())
        with pytest.raises(StoreUnavailable, match=said):
            stranger.get_all_jobs()
        stranger.shutdown()
    for left in gc.get_objects():
        if type(left) is ssl.SSLSocket:  # objects of other tests need not say what they are
            left.close()
