"""Several processes on one Redis store, and a server that is killed. Run as a script, this is one of the processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from mainspring.core.plan import Place, firing, plan
from mainspring.core.run import Status
from mainspring.errors import OutcomeUnknown, StoreUnavailable
from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.redis import RedisJobStore
from mainspring.testing.conformance.helpers import LEASE, claim, make_job, succeed
from tests.servers import Redis, Server, Valkey

ROOT = Path(__file__).parents[3]
PROCESSES = 4
JOBS = 200
ALL = RunQuery()


def _in_processes(url: str, name: str, shards: int) -> list[dict[str, list[str]]]:
    """Fire and execute all there is in several processes at once; return what each says it did."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    command = [sys.executable, __file__, url, name, str(shards)]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        for _ in range(PROCESSES)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        answers = [child.communicate(timeout=60)[0] for child in children]
        assert [child.returncode for child in children] == [0] * PROCESSES
        return [json.loads(answer) for answer in answers]
    finally:
        for child in children:
            child.kill()
            child.communicate()


@pytest.mark.parametrize(("kind", "shards"), [("redis", 1), ("redis", 3), ("valkey", 1)])
def test_several_processes_fire_and_execute_each_job_once(
    kind: str, shards: int, request: pytest.FixtureRequest
) -> None:
    server: Redis | Valkey = request.getfixturevalue(f"{kind}_server")
    name = f"processes-{uuid.uuid4().hex}"
    store = RedisJobStore(url=server.url, name=name, shards=shards)
    store.add_jobs([make_job(store, f"job-{n}", due_in=-5, every=3600) for n in range(JOBS)])
    answers = _in_processes(server.url, name, shards)
    fired = [run_id for answer in answers for run_id in answer["fired"]]
    executed = [run_id for answer in answers for run_id in answer["executed"]]
    executed += _execute(store)  # what was fired by the last after the others had gone
    assert len(fired) == len(set(fired)) == JOBS
    assert {run.id for run in store.find_runs(ALL, limit=2 * JOBS)} == set(fired)
    assert sorted(executed) == sorted(fired)
    assert store.stats().totals["succeeded"] == store.stats(RunQuery(status=(Status.SUCCEEDED,))).matching == JOBS
    assert store.stats().queues == []
    store.shutdown()
    with redis.Redis.from_url(server.url) as client:
        client.flushdb()


def test_a_server_killed_while_jobs_fire_loses_and_doubles_nothing(
    start_server: Callable[[type[Server]], Server],
) -> None:
    server = start_server(Redis)
    store = RedisJobStore(url=server.url)
    store.add_jobs([make_job(store, f"job-{n}", due_in=-5, every=3600) for n in range(JOBS)])
    accepted: list[str] = []
    unknown: set[str] = set()
    enough = [threading.Event() for _ in range(3)]

    def fire_all() -> None:
        while True:
            try:
                page = store.due(5, 0)
                if not page.jobs:
                    return
                steps = [firing(due, plan(due, page.now), Place("default"), page.now) for due in page.jobs]
                try:
                    answers = store.fire(steps, LEASE)
                except OutcomeUnknown:
                    unknown.update(run.id for step in steps for run in step.runs)
                    continue
                accepted.extend(run_id for answer in answers for run_id in answer or ())
            except StoreUnavailable:
                continue
            finally:
                for number, event in enumerate(enough):
                    if len(accepted) >= JOBS // 5 * (number + 1):
                        event.set()

    firing_thread = threading.Thread(target=fire_all)
    firing_thread.start()
    for event in enough:
        assert event.wait(60)
        server.restart()
    firing_thread.join(60)
    assert not firing_thread.is_alive()
    there = [run.id for run in store.find_runs(ALL, limit=2 * JOBS)]
    assert len(there) == JOBS
    assert len(accepted) == len(set(accepted))
    assert set(accepted) <= set(there) <= set(accepted) | unknown
    store.shift_clock(3600)
    assert [due.unfinished for due in store.due(2 * JOBS, 0).jobs] == [1] * JOBS
    store.shutdown()


def _fire(store: RedisJobStore) -> list[str]:
    fired: list[str] = []
    while page := store.due(7, 0).jobs:  # hidden for no time, so that the processes really meet
        now = store.beat()
        steps = [firing(due, plan(due, now), Place("default"), now) for due in page]
        fired += [run_id for answer in store.fire(steps, LEASE) for run_id in answer or ()]
    return fired


def _execute(store: RedisJobStore) -> list[str]:
    done: list[str] = []
    while batch := claim(store, limit=5, token=uuid.uuid4().hex):
        outcomes = [succeed(store, run) for run in batch]
        done += [run.id for run, written in zip(batch, store.settle(outcomes), strict=True) if written]
    return done


def _main(url: str, name: str, shards: str) -> None:
    store = RedisJobStore(url=url, name=name, shards=int(shards))
    store.beat()
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps({"fired": _fire(store), "executed": _execute(store)}), flush=True)
    store.shutdown()


if __name__ == "__main__":
    _main(*sys.argv[1:])
