"""A scheduler is killed between two steps of a fire whose runs are in another store. As a script: that scheduler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import create_engine

from mainspring.core.plan import Place, firing, plan
from mainspring.core.run import Call, Status
from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.redis import RedisJobStore
from mainspring.jobstores.split import SplitJobStore
from mainspring.schedulers.background import BackgroundScheduler
from mainspring.testing.conformance.helpers import make_job
from mainspring.triggers.date import DateTrigger
from tests.record_stores import TableRecords
from tests.servers import Redis

ROOT = Path(__file__).parents[3]
LEASE = 1.0
_names = count(1)


def note(folder: str, name: str) -> None:
    """Leave a trace of one execution: what the jobs call."""
    with (Path(folder) / name).open("a") as trace:
        trace.write("once\n")


def opened(folder: str, url: str, name: str) -> SplitJobStore:
    engine = create_engine(f"sqlite:///{folder}/jobs.db", connect_args={"timeout": 30})
    return SplitJobStore(TableRecords(engine), RedisJobStore(url=url, name=name))


def fire_and_die(folder: str, url: str, name: str, point: str, slot: str) -> None:
    """Fire everything that is due, and be killed between two steps."""
    store = opened(folder, url, name)
    add_fired = store._add_fired

    def die(*args: Any) -> Any:
        if point == "after the runs":
            add_fired(*args)
        os.kill(os.getpid(), signal.SIGKILL)

    store._add_fired = die  # type: ignore[method-assign, assignment]
    place = Place(".default", "killed", "token-of-the-killed") if slot else Place(".default")
    page = store.due(100, 0)
    store.fire([firing(due, plan(due, page.now), place, page.now) for due in page.jobs], LEASE)


@pytest.fixture
def name(redis_server: Redis) -> Iterator[str]:
    yield f"split-kills-{next(_names)}"
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushdb()


@pytest.mark.parametrize(
    ("point", "slot"),
    [("before the runs", ""), ("before the runs", "slot"), ("after the runs", "")],
    ids=["before the runs", "before the runs, in a slot", "after the runs"],
)
def test_a_scheduler_killed_between_two_steps_loses_and_doubles_nothing(
    tmp_path: Path, redis_server: Redis, name: str, point: str, slot: str
) -> None:
    where = (str(tmp_path), redis_server.url, name)
    store = opened(*where)
    jobs = [
        make_job(store, f"job-{n}", due_in=-5, every=3600, call=Call(note, (str(tmp_path), f"trace-{n}"), name="note"))
        for n in range(10)
    ]
    for job in jobs[:5]:  # these are finished by their only fire
        job.trigger = DateTrigger(job.next_run_time)
    store.add_jobs(jobs)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    killed = subprocess.run([sys.executable, __file__, *where, point, slot], env=environment, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert store.stats(RunQuery()).matching == (0 if point == "before the runs" else 10)
    assert len(store.get_all_jobs()) == 5

    with BackgroundScheduler(jobstores={"default": store}):
        deadline = time.monotonic() + 60
        while (store.stats().totals["succeeded"] < 10 or len(store.jobs.all()) > 5) and time.monotonic() < deadline:
            time.sleep(0.05)
    traces = Counter({path.name: len(path.read_text().splitlines()) for path in tmp_path.glob("trace-*")})
    assert traces == {f"trace-{n}": 1 for n in range(10)}
    left = opened(*where)
    assert {run.status for run in left.find_runs(RunQuery(), limit=100)} == {Status.SUCCEEDED}
    assert left.stats(RunQuery()).matching == 10
    assert len(left.jobs.all()) == 5  # the finished ones are gone for good
    left.shutdown()


if __name__ == "__main__":
    fire_and_die(*sys.argv[1:])
