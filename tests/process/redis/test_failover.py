"""Fail-over of Redis Sentinel and Redis Cluster under load. Run as a script, this is one of the nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest

from mainspring import Mainspring
from mainspring.core.plan import Place, firing, plan
from mainspring.core.run import Run, Status
from mainspring.errors import ConfigurationError, OutcomeUnknown, StoreUnavailable
from mainspring.executors.current_run import current_run
from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.redis import RedisJobStore
from mainspring.testing.conformance.helpers import LEASE, claim, make_job, make_run, new_id, succeed
from mainspring.triggers.interval import IntervalTrigger
from tests.redis_fleet import SECONDS, ClusterFleet, SentinelFleet, until
from tests.servers import Redis

ROOT = Path(__file__).parents[3]
NODES = 2
JOBS = 10
T = TypeVar("T")


@pytest.fixture(scope="module")
def sentinel_fleet(redis_server: Redis) -> Iterator[SentinelFleet]:
    with SentinelFleet() as fleet:
        yield fleet


@pytest.fixture(scope="module")
def cluster_fleet(redis_server: Redis) -> Iterator[ClusterFleet]:
    with ClusterFleet() as fleet:
        yield fleet


# -- nodes under Redis Sentinel --------------------------------------------------------------------------------------


def make_app(url: str, executed: Path) -> Mainspring:
    """Make an app with jobs that fire five times a second; each run notes its id once it is executed."""
    app = Mainspring(url)
    notes = os.open(executed, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @app.task(name="note")
    def note() -> None:
        os.write(notes, f"{current_run().id}\n".encode())

    for number in range(JOBS):
        app.schedule(IntervalTrigger(seconds=0.2), id=f"job-{number}")(note)
    return app


@contextmanager
def nodes(url: str, executed: Path) -> Iterator[None]:
    """Have processes schedule and work; at the end they leave in good order."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    command = [sys.executable, __file__, url, str(executed)]
    children = [subprocess.Popen(command, env=env) for _ in range(NODES)]
    try:
        yield
        for child in children:
            child.send_signal(signal.SIGTERM)
        assert [child.wait(SECONDS) for child in children] == [0] * NODES
    finally:
        for child in children:
            child.kill()
            child.wait()


class Enqueuer(threading.Thread):
    """Enqueues without a pause and keeps the ids that were acknowledged."""

    def __init__(self, app: Mainspring) -> None:
        super().__init__(daemon=True)
        self._app = app
        self._done = threading.Event()
        self.acknowledged: list[str] = []
        self.refused = 0

    def run(self) -> None:
        call = self._app.as_task("note").call()
        while not self._done.is_set():
            try:
                self.acknowledged += [handle.id for handle in self._app.enqueue_many([call] * 3)]
            except StoreUnavailable:
                self.refused += 1
            time.sleep(0.002)  # the nodes need the processor, too

    def stop(self) -> None:
        self._done.set()
        self.join(SECONDS)
        assert not self.is_alive()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


# While a primary that lives is replaced, one of its replicas may still follow it: only all of them are enough then.
@pytest.mark.parametrize(("fault", "replicas"), [("killed", 1), ("replaced", 2)])
def test_when_the_primary_is_lost_nothing_acknowledged_is_lost_and_nothing_is_executed_twice(
    fault: str, replicas: int, sentinel_fleet: SentinelFleet, tmp_path: Path
) -> None:
    for number in range(3):
        sentinel_fleet.complete()
        epoch = sentinel_fleet.epoch()
        executed = tmp_path / str(number)
        url = f"{sentinel_fleet.url}?replicas={replicas}&name={fault}-{number}&keep_runs=1000000"
        with make_app(url, executed) as app:
            ids = fail_over(sentinel_fleet, app, fault, executed)
            if sentinel_fleet.epoch() > epoch + 1:
                continue  # a machine that stood still was taken for dead: that is another fault, so once more
            notes = Counter(lines(executed))
            assert set(ids) - notes.keys() == set()
            assert [run_id for run_id, times in notes.items() if times > 1] == []
            runs = app.store.get_runs([*ids, *(line for line in notes if "@" in line)])
            assert {None if run is None else run.status for run in runs} == {Status.SUCCEEDED}
            assert app.store.stats(RunQuery(status=(Status.RUNNING,))).matching == 0
            return
    pytest.fail("each time the Sentinels took more than one server for dead")


def fail_over(fleet: SentinelFleet, app: Mainspring, fault: str, executed: Path) -> list[str]:
    """Let the nodes lose their primary under load and go on; return the ids of what was acknowledged."""
    enqueuer = Enqueuer(app)
    with nodes(str(app.url), executed):
        until(lambda: len(app.store.nodes()) == NODES, "the nodes take part")
        enqueuer.start()
        until(lambda: len(lines(executed)) > 200, "runs are executed")
        until(lambda: any("@" in line for line in lines(executed)), "jobs fire")
        primary = fleet.primary()
        if fault == "killed":
            fleet.kill_primary()
        else:
            fleet.sentinels[0].ask("SENTINEL", "FAILOVER", fleet.service)
        start, before, seen = time.monotonic(), len(enqueuer.acknowledged), set(lines(executed))
        until(lambda: fleet.primary() is not primary, "another server is the primary")
        promoted = time.monotonic() - start
        if fault == "replaced":
            fleet.complete()
        until(lambda: len(enqueuer.acknowledged) > before + 200, "runs are acknowledged again")
        later = set(enqueuer.acknowledged[before + 100 :])
        until(lambda: not later.isdisjoint(lines(executed)), "runs are executed again")
        resumed = time.monotonic() - start
        until(lambda: any("@" in line for line in set(lines(executed)) - seen), "jobs fire again")
        enqueuer.stop()
        ids = enqueuer.acknowledged
        until(lambda: app.store.stats().queues == [], "there is nothing left to execute")
    print(f"promoted after {promoted:.1f} s, resumed after {resumed:.1f} s, {len(ids)} acknowledged")
    return ids


def test_a_service_that_no_sentinel_knows_is_compared_with_those_they_know(sentinel_fleet: SentinelFleet) -> None:
    url = sentinel_fleet.url.replace(f"/{sentinel_fleet.service}/", "/mian/")
    with pytest.raises(ConfigurationError, match=r"know no service 'mian'; did you mean 'main'\?"):
        RedisJobStore(url=url).beat()


def test_who_waits_hears_of_what_happens_at_the_new_primary(sentinel_fleet: SentinelFleet) -> None:
    sentinel_fleet.complete()
    store = RedisJobStore(url=sentinel_fleet.url, name="waiting")
    cursor = patient(lambda: store.wait(0, 0))
    heard: list[int] = []
    done = threading.Event()

    def listen() -> None:
        at = cursor
        while not done.is_set():
            try:
                changed = store.wait(at, 1.0)
                if changed != at:
                    at = changed
                    heard.append(at)
            except StoreUnavailable:
                done.wait(0.1)

    def add_until_heard() -> bool:
        before = len(heard)
        patient(lambda: store.add_runs([make_run(store, new_id())]))
        return len(heard) > before or done.wait(0.1)

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        until(add_until_heard, "a run is heard of")
        primary = sentinel_fleet.primary()
        primary.kill()
        until(lambda: sentinel_fleet.primary() is not primary, "another server is the primary")
        until(add_until_heard, "a run at the new primary is heard of")
    finally:
        done.set()
        listener.join(SECONDS)
    assert not listener.is_alive()
    store.shutdown()


def test_who_waits_for_replicas_of_a_primary_that_was_replaced_is_let_go(
    sentinel_fleet: SentinelFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.jobstores.redis.connection.REPLICATION_SECONDS", 3600.0)
    sentinel_fleet.complete()
    store = RedisJobStore(url=sentinel_fleet.url, name="let-go", replicas=3)  # of which there are two
    patient(store.beat)
    run = make_run(store)
    primary = sentinel_fleet.primary()

    def replace() -> None:
        until(lambda: int(primary.client().info("clients")["blocked_clients"]) > 0, "somebody waits for replicas")
        until(
            lambda: bool(sentinel_fleet.sentinels[0].ask("SENTINEL", "FAILOVER", sentinel_fleet.service)),
            "the Sentinels do it",  # who may still have to learn about the replicas
        )

    with ThreadPoolExecutor(1) as threads:
        replaced = threads.submit(replace)
        with pytest.raises(OutcomeUnknown, match="another server is the primary by now"):
            store.add_runs([run])
        replaced.result()
    store.shutdown()


# -- Redis Cluster ---------------------------------------------------------------------------------------------------


def patient(act: Callable[[], T]) -> T:
    """Repeat what the store could not do, or does not know whether it did."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return act()
        except StoreUnavailable:
            assert time.monotonic() < deadline
            time.sleep(0.05)


class Load:
    """Adds, claims, settles and fires on a store from several threads, repeating whatever fails."""

    def __init__(self, store: RedisJobStore) -> None:
        self.store = store
        self.acknowledged: list[str] = []
        self.executed: list[str] = []
        self.fired: list[str] = []
        self.errors: list[BaseException] = []
        self._done = threading.Event()
        self._numbers = count()
        acts = [self._add, self._execute, self._execute, self._fire]
        self._threads = [threading.Thread(target=self._repeat, args=(act,), daemon=True) for act in acts]

    def __enter__(self) -> Load:
        self.store.add_jobs(
            [make_job(self.store, f"job-{number}", every=0.2, max_instances=1000) for number in range(JOBS)]
        )
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(SECONDS)
        assert not any(thread.is_alive() for thread in self._threads)

    def goes_on(self) -> None:
        """Wait until much more of everything was done."""
        wanted = [len(self.acknowledged) + 200, len(self.executed) + 200, len(self.fired) + 20]
        done = (self.acknowledged, self.executed, self.fired)
        until(lambda: all(len(one) >= number for one, number in zip(done, wanted, strict=True)) or bool(self.errors))
        assert self.errors == []

    def _repeat(self, act: Callable[[], None]) -> None:
        try:
            while not self._done.is_set():
                act()
                time.sleep(0.002)
        except BaseException as error:
            self.errors.append(error)
            raise

    def _add(self) -> None:
        runs = patient(lambda: [make_run(self.store, f"run-{next(self._numbers)}") for _ in range(6)])
        self.acknowledged += [str(run_id) for run_id in patient(lambda: self.store.add_runs(runs))]

    def _execute(self) -> None:
        token = f"token-{next(self._numbers)}"
        runs = patient(lambda: claim(self.store, limit=10, token=token))
        self.executed += [run.id for run in runs]
        outcomes = patient(lambda: [succeed(self.store, run) for run in runs])  # which asks for the time
        patient(lambda: self.store.settle(outcomes))

    def _fire(self) -> None:
        page = patient(lambda: self.store.due(5, 0))
        steps = [firing(due, plan(due, page.now), Place("default"), page.now) for due in page.jobs]
        try:
            self.fired += [run_id for answer in self.store.fire(steps, LEASE) for run_id in answer or ()]
        except StoreUnavailable:
            time.sleep(0.05)  # what is still due is fired again, what is not was fired

    def check(self) -> None:
        """Execute what is left; all that was acknowledged or fired must have been executed, once."""
        while runs := patient(lambda: claim(self.store, limit=100, token=f"token-{next(self._numbers)}")):
            self.executed += [run.id for run in runs]
            patient(lambda runs=runs: self.store.settle([succeed(self.store, run) for run in runs]))  # type: ignore[misc]
        assert [run_id for run_id, number in Counter(self.executed).items() if number > 1] == []
        there = {run.id: run.status for run in all_runs(self.store)}
        assert set(self.acknowledged) | set(self.fired) <= there.keys() == set(self.executed)
        assert set(there.values()) == {Status.SUCCEEDED}
        assert self.store.stats().totals["succeeded"] == len(there)
        assert self.store.stats().queues == []


def all_runs(store: RedisJobStore) -> Sequence[Run]:
    return store.find_runs(RunQuery(), limit=1_000_000)


def test_a_primary_of_a_cluster_is_killed_under_load(cluster_fleet: ClusterFleet) -> None:
    store = RedisJobStore(url=cluster_fleet.url, name="killed", shards=6, replicas=1, keep_runs=1_000_000)
    with Load(store) as load:
        load.goes_on()
        key = store._shards.channels[0]
        primary = cluster_fleet.owner(key)
        primary.kill()
        start = time.monotonic()
        until(lambda: cluster_fleet.owner(key) is not primary, "a replica was promoted")
        primary.restart()  # now a replica: without it the others would have none, and confirm nothing
        load.goes_on()
        print(f"resumed after {time.monotonic() - start:.1f} s")
    load.check()
    store.shutdown()


def test_the_slot_of_a_shard_moves_under_load(cluster_fleet: ClusterFleet) -> None:
    until(cluster_fleet.healthy, "the cluster is complete")
    store = RedisJobStore(url=cluster_fleet.url, name="moved", shards=6, replicas=1, keep_runs=1_000_000)
    hasty = RedisJobStore(url=cluster_fleet.url, name="moved", shards=6)
    hasty._link.servers.patience = 0.0
    key = store._shards.channels[0]
    refusals: list[str] = []

    def look() -> None:
        with pytest.raises(StoreUnavailable) as refused:
            hasty.nodes()  # the list of the nodes is in the first shard
        refusals.append(str(refused.value))

    with Load(store) as load:
        load.goes_on()
        hasty.nodes()
        source = cluster_fleet.owner(key)
        target = next(owner for owner in map(cluster_fleet.owner, store._shards.channels) if owner is not source)
        cluster_fleet.move(key, target, look)
        assert cluster_fleet.owner(key) is target
        load.goes_on()
    assert len(refusals) == 1
    assert "is moving these keys to another server" in refusals[0]
    assert patient(hasty.nodes) == []
    load.check()
    store.shutdown()
    hasty.shutdown()


def test_who_waits_hears_of_every_shard_of_a_cluster(cluster_fleet: ClusterFleet) -> None:
    store = RedisJobStore(url=cluster_fleet.url, name="heard", shards=6)
    assert len({cluster_fleet.owner(key).port for key in store._shards.channels}) > 1
    cursor = patient(lambda: store.wait(0, 0))
    for number in range(20):
        adding = threading.Timer(0.02, lambda number=number: store.add_runs([make_run(store, f"run-{number}")]))
        adding.start()
        changed = store.wait(cursor, SECONDS)
        assert changed > cursor
        cursor = changed
        adding.join()
    store.shutdown()


def main() -> None:
    """Take part until told to leave."""
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    with make_app(sys.argv[1], Path(sys.argv[2])) as app:
        patient(lambda: app.start(work=True, threads=4))  # Sentinels may take a busy machine for a dead one
        while not told:  # never for long: a handler does not run in a thread that has just begun to wait for a lock
            time.sleep(0.1)


if __name__ == "__main__":
    main()
