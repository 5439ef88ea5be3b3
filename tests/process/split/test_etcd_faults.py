"""Jobs in etcd while members die, the network fails, the history is compacted and the disk is full."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from mainspring.errors import OutcomeUnknown, StoreUnavailable
from mainspring.jobstores.etcd import EtcdClient, EtcdJobStore
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.split import changes
from mainspring.testing.conformance.helpers import CALL, add_job, due_one, fire, make_job
from tests.chaos.proxy import Proxy
from tests.etcd_fleet import EtcdTrio
from tests.process.fire_crowd import fire_through
from tests.servers import HOST, Etcd, Server


@pytest.fixture
def store(etcd_server: Etcd, request: pytest.FixtureRequest) -> Iterator[EtcdJobStore]:
    store = EtcdJobStore(f"/{request.node.name}", port=etcd_server.port, runs=MemoryJobStore())
    store.start(None, "default")
    yield store
    store.shutdown()


@pytest.fixture(autouse=True)
def _short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a watch that has failed begin again at once."""
    monkeypatch.setattr(changes, "PAUSE_SECONDS", 0.05)


def test_a_server_that_is_killed_while_jobs_fire_loses_and_doubles_none(
    start_server: Callable[[type[Server]], Server],
) -> None:
    server = start_server(Etcd)
    fire_through(lambda runs: EtcdJobStore("/kills", port=server.port, runs=runs), server.restart, rounds=2)


def test_a_leader_that_is_lost_while_jobs_fire_loses_and_doubles_none(etcd_server: Etcd) -> None:
    with EtcdTrio() as trio:

        def hurt() -> None:
            leader = trio.leader()
            leader.kill()
            trio.leader()
            leader.restart()

        fire_through(lambda runs: EtcdJobStore("/kills", endpoints=trio.endpoints, runs=runs), hurt, rounds=2)
        store = EtcdJobStore("/kills", endpoints=trio.endpoints, runs=MemoryJobStore())
        health = store.jobs.health()
        store.shutdown()
    assert health.level == "replicated(1)"
    assert health.reasons == ("2 of 3 members have each write on disk before it is acknowledged",)


@pytest.mark.parametrize("mode", ["refuse", "mute"])
def test_connections_that_are_cut_lose_and_double_no_fire(etcd_server: Etcd, mode: str) -> None:
    proxy = Proxy(etcd_server.port)

    def hurt() -> None:
        proxy.cut(mode)  # type: ignore[arg-type]
        time.sleep(0.3)
        proxy.mend()

    try:
        make = lambda runs: EtcdJobStore(f"/cut-{mode}", port=proxy.port, timeout=1.0, runs=runs)  # noqa: E731
        fire_through(make, hurt, rounds=2)
    finally:
        proxy.close()


def test_the_outcome_of_a_write_without_a_reply_is_unknown_and_a_read_is_only_late(etcd_server: Etcd) -> None:
    proxy = Proxy(etcd_server.port)
    store = EtcdJobStore("/mute", port=proxy.port, timeout=0.3, runs=MemoryJobStore())
    add_job(store, "job")
    try:
        proxy.cut("mute")
        with pytest.raises(StoreUnavailable) as caught:
            store.get_all_jobs()
        assert not isinstance(caught.value, OutcomeUnknown)
        with pytest.raises(OutcomeUnknown):
            store.jobs.client.call("kv/put", {"key": "YQ==", "value": "YQ=="}, write=True)
        proxy.mend()
        assert [job.id for job in store.get_all_jobs()] == ["job"]
    finally:
        proxy.close()
        store.shutdown()


def test_a_watch_goes_on_after_the_server_was_away(start_server: Callable[[type[Server]], Server]) -> None:
    server = start_server(Etcd)
    store = EtcdJobStore("/watch", port=server.port, runs=MemoryJobStore())
    other = EtcdJobStore("/watch", port=server.port, runs=MemoryJobStore())
    cursor = _at_rest(store)
    server.restart()
    assert store.jobs.wait(cursor, 30) != cursor
    cursor = _at_rest(store)
    other.add_jobs([make_job(other, "of another")])
    assert store.jobs.wait(cursor, 30) != cursor
    store.shutdown()
    other.shutdown()


def _at_rest(store: EtcdJobStore) -> int:
    cursor = store.jobs.wait(0, 0)
    while (later := store.jobs.wait(cursor, 0.4)) != cursor:
        cursor = later
    return cursor


def test_a_compacted_history_harms_nothing(store: EtcdJobStore) -> None:
    add_job(store, every=3600)
    cursor = store.jobs.wait(0, 0)
    revision = int(store.client.call("maintenance/status", {})["header"]["revision"])
    store.client.call("kv/compaction", {"revision": revision, "physical": True})
    assert fire(store, due_one(store)) is not None
    assert store.jobs.wait(cursor, 30) != cursor


class SmallEtcd(Etcd):
    options = ("--quota-backend-bytes", str(64 * 1024))


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_full_database_refuses_writes_and_says_what_to_do(
    start_server: Callable[[type[Server]], Server], at_once: int
) -> None:
    server = start_server(SmallEtcd)
    store = EtcdJobStore("/full", port=server.port, runs=MemoryJobStore())
    add_job(store, "first")

    def fill() -> None:
        for number in range(100):
            large = replace(CALL, args=(os.urandom(5000),))
            store.add_jobs([make_job(store, f"{number}-{each}", call=large) for each in range(at_once)])

    with pytest.raises(StoreUnavailable, match="its database is full: compact it") as caught:
        fill()
    assert not isinstance(caught.value, OutcomeUnknown)  # it was refused, not lost
    assert "NOSPACE" in " ".join(store.health().warnings)
    store.remove_jobs()  # the way out
    assert store.get_all_jobs() == []
    store.shutdown()


class SecureEtcd(Etcd):
    options = ("--auto-tls",)
    scheme = "https"


def test_a_server_with_tls(start_server: Callable[[type[Server]], Server]) -> None:
    server = start_server(SecureEtcd)
    ca = next(server.directory.rglob("cert.pem"))
    store = EtcdJobStore(url=f"{server.url}/secure?ca={ca}", runs=MemoryJobStore())
    store.start(None, "default")
    add_job(store, "job")
    assert [job.id for job in store.get_all_jobs()] == ["job"]
    store.shutdown()
    stranger = EtcdJobStore(url=f"{server.url}/secure", runs=MemoryJobStore())
    with pytest.raises(StoreUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        stranger.get_all_jobs()
    stranger.shutdown()


def test_a_server_with_users(start_server: Callable[[type[Server]], Server]) -> None:
    server = start_server(Etcd)
    admin = EtcdClient(port=server.port)
    admin.call("auth/user/add", {"name": "root", "password": "r"})
    admin.call("auth/user/grant", {"user": "root", "role": "root"})
    admin.call("auth/user/add", {"name": "ann", "password": "s3cret"})
    admin.call("auth/role/add", {"name": "jobs"})
    grant = {"permType": "READWRITE", "key": "L2pvYnM=", "range_end": "L2pvYnQ="}  # /jobs to /jobt
    admin.call("auth/role/grant", {"name": "jobs", "perm": grant})
    admin.call("auth/user/grant", {"user": "ann", "role": "jobs"})
    admin.call("auth/enable", {})
    admin.close()
    store = EtcdJobStore(url=f"etcd://ann:s3cret@{HOST}:{server.port}/jobs", runs=MemoryJobStore())
    store.start(None, "default")
    cursor = _at_rest(store)
    add_job(store, "job")
    assert store.jobs.wait(cursor, 30) != cursor
    store.client._token = "no-such.1"  # as after five minutes, or another member
    assert [job.id for job in store.get_all_jobs()] == ["job"]
    store.shutdown()
    for place, said in (
        (f"ann:s3cret@{HOST}:{server.port}/other", "permission denied"),
        (f"ann:wrong@{HOST}:{server.port}/jobs", "authentication failed"),
        (f"{HOST}:{server.port}/jobs", "give a user and a password"),
    ):
        stranger = EtcdJobStore(url=f"etcd://{place}", runs=MemoryJobStore())
        with pytest.raises(StoreUnavailable, match=said) as caught:
            stranger.get_all_jobs()
        assert "s3cret" not in str(caught.value)
        stranger.shutdown()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_after_a_fork_the_child_has_connections_of_its_own(store: EtcdJobStore) -> None:
    add_job(store, "job")
    reading, writing = os.pipe()
    with store.client._lock:
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


def test_many_large_jobs_are_written_in_several_transactions(store: EtcdJobStore) -> None:
    large = replace(CALL, args=(os.urandom(100_000),))
    store.add_jobs([make_job(store, f"j{number}", call=large) for number in range(40)])
    assert len(store.get_all_jobs()) == 40
    assert store.remove_jobs() == 40


def test_a_store_that_is_opened_while_its_server_is_away_works_when_it_is_back(
    start_server: Callable[[type[Server]], Server],
) -> None:
    server = start_server(Etcd)
    server.kill()
    store = EtcdJobStore("/later", port=server.port, runs=MemoryJobStore())
    with pytest.raises(StoreUnavailable):
        store.get_all_jobs()
    server.restart()
    add_job(store, "job")
    assert [job.id for job in store.get_all_jobs()] == ["job"]
    store.shutdown()
