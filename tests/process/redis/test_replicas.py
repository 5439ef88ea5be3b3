"""`replicas=n`: what is not on enough replicas is neither acknowledged nor handed out."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TypeVar

import pytest

from mainspring.core.plan import Place, firing, plan
from mainspring.core.run import Status
from mainspring.errors import ConfigurationError, OutcomeUnknown, StoreUnavailable
from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.redis import RedisJobStore, connection, servers
from mainspring.testing.conformance.helpers import LEASE, add_job, claim, due_one, make_job, make_run, succeed
from tests.redis_fleet import FleetRedis, until
from tests.servers import HOST, Redis

_names = count(1)
T = TypeVar("T")


class Pair:
    """A primary and its only replica."""

    def __init__(self, primary: FleetRedis, replica: FleetRedis) -> None:
        self.primary = primary
        self.replica = replica

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Stop the replica, so that it confirms nothing."""
        os.kill(self.replica.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.replica.pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def pair(redis_server: Redis) -> Iterator[Pair]:
    with FleetRedis() as primary, FleetRedis("--replicaof", f"{HOST} {primary.port}") as replica:
        until(lambda: replica.client().info("replication")["master_link_status"] == "up")
        yield Pair(primary, replica)


@pytest.fixture(params=[1, 3])
def store(pair: Pair, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisJobStore]:
    store = RedisJobStore(url=f"{pair.primary.url}?replicas=1", name=f"replicas-{next(_names)}", shards=request.param)
    store.beat()
    monkeypatch.setattr(connection, "REPLICATION_SECONDS", 0.1)
    yield store
    store.shutdown()


def repeated(act: Callable[[], T]) -> T:
    """Repeat until a replica that was stopped has caught up."""
    found: list[T] = []

    def acted() -> bool:
        found.append(act())
        return True

    until(acted, "it is confirmed")
    return found[0]


def test_what_is_added_is_acknowledged_once_a_replica_has_it(pair: Pair, store: RedisJobStore) -> None:
    runs = [make_run(store, f"run-{number}") for number in range(600)]
    with pair.cut(), pytest.raises(OutcomeUnknown, match=r"only 0 of replicas=1 have it.*repeating it is safe"):
        store.add_runs(runs)
    assert repeated(lambda: store.add_runs(runs)) == [run.id for run in runs]
    replica = RedisJobStore(client=pair.replica.client(), name=store.name, shards=len(store._shards.all))
    assert replica.stats(RunQuery()).matching == len(runs)
    assert store.stats(RunQuery()).matching == len(runs)


def test_a_claim_is_handed_out_once_a_replica_has_it(pair: Pair, store: RedisJobStore) -> None:
    repeated(lambda: store.add_runs([make_run(store, f"run-{number}") for number in range(6)]))
    with pair.cut():
        for _ in range(2):  # nor is it when it is repeated, though nothing is written then
            with pytest.raises(OutcomeUnknown):
                claim(store, limit=4, token="mine")
    runs = repeated(lambda: claim(store, limit=4, token="mine"))
    assert 1 <= len(runs) <= 4  # of several shards, it was the first that did not confirm
    assert {run.attempt for run in runs} == {1}
    assert store.stats(RunQuery(status=(Status.RUNNING,))).matching == len(runs)


def test_a_fire_is_known_once_a_replica_has_it(pair: Pair, store: RedisJobStore) -> None:
    repeated(lambda: add_job(store))
    due = due_one(store)
    now = store.beat()
    steps = [firing(due, plan(due, now), Place("default"), now)]
    with pair.cut(), pytest.raises(OutcomeUnknown):
        store.fire(steps, LEASE)
    assert repeated(lambda: store.fire(steps, LEASE)) == [None]  # it was fired, once
    assert len(repeated(lambda: claim(store, limit=5, token="mine"))) == 1


def test_jobs_and_outcomes_wait_for_a_replica_too(pair: Pair, store: RedisJobStore) -> None:
    repeated(lambda: store.add_runs([make_run(store, "run")]))
    (run,) = repeated(lambda: claim(store, token="mine"))
    outcome = succeed(store, run)
    with pair.cut():
        with pytest.raises(OutcomeUnknown):
            store.settle([outcome])
        with pytest.raises(OutcomeUnknown):
            store.add_job(make_job(store, "job"))
        with pytest.raises(OutcomeUnknown):
            store.remove_all_jobs()
        assert store.due(1, 0).jobs == []  # what only reads, or leaves a hint, waits for nobody
        assert store.get_runs(["run"])[0].status is Status.SUCCEEDED  # type: ignore[union-attr]


def test_a_store_says_when_it_starts_that_replicas_are_missing(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    store = RedisJobStore(url=pair.primary.url, replicas=2, name="too-few")
    with caplog.at_level(logging.WARNING, "mainspring"):
        store.start(None, "default")
    assert "1 of 2 replicas are connected: nothing is acknowledged" in caplog.text
    store.shutdown()


def test_a_replica_is_no_primary(pair: Pair) -> None:
    store = RedisJobStore(url=pair.replica.url, name="read-only")
    with pytest.raises(StoreUnavailable, match="read-only replica"):
        store.add_runs([make_run(store, "run")])
    store.shutdown()


def test_no_sentinel_answers_and_the_error_says_who_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers.Servers, "patience", 0.1)
    store = RedisJobStore(url="redis+sentinel://:secret@127.0.0.1:1,127.0.0.1:2/main?replicas=1")
    with pytest.raises(StoreUnavailable, match=r"service 'main': 127\.0\.0\.1:1 \(.*\), 127\.0\.0\.1:2 \(") as error:
        store.beat()
    assert "secret" not in str(error.value)


def test_a_server_outside_a_cluster_is_named(pair: Pair) -> None:
    store = RedisJobStore(url=f"redis+cluster://{HOST}:{pair.primary.port}")
    with pytest.raises(ConfigurationError, match=rf"write redis://{HOST}:{pair.primary.port} for it"):
        store.beat()
