"""`mainspring import` from ZooKeeper and etcd, as APScheduler 3 has filled them.

APScheduler itself writes to ZooKeeper here. Its store for etcd needs the package etcd3, which does not work beside
today's protobuf: those records are written as its source lays them out, one pickle of `next_run_time` and `job_state`
under `<path>/<id>`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore as TheirTable
from apscheduler.jobstores.zookeeper import ZooKeeperJobStore as TheirZooKeeperStore
from apscheduler.util import datetime_to_utc_timestamp
from kazoo.client import KazooClient

from mainspring.jobstores.etcd import EtcdClient
from mainspring.jobstores.etcd.client import b64
from tests.cli.importing.test_import import TRIGGERS, assert_same, call, every_trigger, first_line, stored, write
from tests.servers import HOST, Etcd, ZooKeeper


@pytest.fixture
def target(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def zookeeper(zookeeper_server: ZooKeeper) -> Iterator[KazooClient]:
    client = KazooClient(hosts=f"{HOST}:{zookeeper_server.port}")
    client.start()
    yield client
    client.delete("/apscheduler", recursive=True)
    client.stop()
    client.close()


def test_jobs_come_from_zookeeper_with_the_same_fire_times(
    zookeeper: KazooClient, zookeeper_server: ZooKeeper, target: str
) -> None:
    theirs = write(TheirZooKeeperStore(client=zookeeper), every_trigger)
    before = {name: zookeeper.get(f"/apscheduler/{name}")[0] for name in zookeeper.get_children("/apscheduler")}
    code, output = call(zookeeper_server.url, target, "--allow-pickle")
    assert (code, first_line(output)) == (0, f"{len(TRIGGERS)} jobs imported, unsigned")
    assert_same(theirs, stored(target))
    after = {name: zookeeper.get(f"/apscheduler/{name}")[0] for name in zookeeper.get_children("/apscheduler")}
    assert after == before
    # And back, to a path of our own beside theirs.
    beside = f"{zookeeper_server.url}/imported"
    assert call(zookeeper_server.url, beside, "--allow-pickle")[0] == 0
    assert_same(theirs, stored(beside))
    zookeeper.delete("/imported", recursive=True)


def test_a_path_that_is_not_there_is_named(zookeeper_server: ZooKeeper, target: str) -> None:
    code, output = call(f"{zookeeper_server.url}/nowhere", target, "--allow-pickle")
    assert code == 1
    assert "has no '/nowhere'" in output


def test_jobs_come_from_etcd_with_the_same_fire_times(etcd_server: Etcd, tmp_path: Path, target: str) -> None:
    table = TheirTable(f"sqlite:///{tmp_path}/theirs.db")
    theirs = write(table, every_trigger)
    client = EtcdClient(port=etcd_server.port)
    for job_id, job in theirs.items():
        put_as_apscheduler_does(client, f"/apscheduler/{job_id}", job)
    code, output = call(etcd_server.url, target, "--allow-pickle")
    assert (code, first_line(output)) == (0, f"{len(TRIGGERS)} jobs imported, unsigned")
    assert_same(theirs, stored(target))
    beside = f"{etcd_server.url}/imported"
    assert call(etcd_server.url, beside, "--allow-pickle")[0] == 0
    assert_same(theirs, stored(beside))
    for path in ("/apscheduler", "/imported"):
        client.call("kv/deleterange", {"key": b64(f"{path}/"), "range_end": b64(f"{path}0")})
    client.close()


def put_as_apscheduler_does(client: EtcdClient, key: str, job: Any) -> None:
    document = {"next_run_time": datetime_to_utc_timestamp(job.next_run_time), "job_state": job.__getstate__()}
    client.call("kv/put", {"key": b64(key), "value": b64(pickle.dumps(document))}, write=True)
