"""`shard=` pins jobs and runs: their ids say so, and a store of several shards keeps them together."""

from __future__ import annotations

import pytest
import redis

from mainspring import Mainspring
from mainspring.errors import ConfigurationError
from mainspring.jobstores.redis import RedisJobStore
from mainspring.schedulers.background import BackgroundScheduler
from tests.servers import Redis


def work(number: int = 0) -> int:
    return number


def test_a_job_and_a_run_that_are_pinned_have_the_shard_in_their_ids() -> None:
    app = Mainspring("memory://")
    task = app.task(work)
    assert app.add_job(task, "interval", minutes=5, id="report", shard="tenant-7").id == "{tenant-7}report"
    assert task.options(shard="tenant-7").enqueue(1).id.startswith("{tenant-7}")
    assert BackgroundScheduler().add_job(work, id="mail", shard="tenant-7").id == "{tenant-7}mail"


def test_a_shard_cannot_have_braces_in_its_name() -> None:
    with pytest.raises(ConfigurationError, match="without braces"):
        BackgroundScheduler().add_job(work, shard="{7}")


def test_what_is_pinned_to_one_shard_lives_there(redis_server: Redis) -> None:
    store = RedisJobStore(url=redis_server.url, name="pinned", shards=3)
    app = Mainspring(store)
    try:
        task = app.task(work)
        jobs = [app.add_job(task, "interval", minutes=5, id=f"j{n}", shard="tenant-7").id for n in range(5)]
        runs = [task.options(shard="tenant-7").enqueue(n).id for n in range(5)]
        keyed = [task.options(shard="tenant-7", unique=f"u{n}").enqueue(n).id for n in range(5)]
        shards = {store._shards.of_job(job_id).prefix for job_id in jobs}
        assert len(shards) == 1
        with redis.Redis.from_url(redis_server.url) as client:
            held = client.hkeys(f"{shards.pop()}calls")
        assert {key.decode() for key in held} == {*runs, *keyed}
    finally:
        app.close()
