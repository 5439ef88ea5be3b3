"""taskiq's side of the comparison of queues: the Redis broker that acknowledges, results kept."""

# mypy: disable-error-code="import-not-found, import-untyped"
from __future__ import annotations

import os
from typing import Any

import redis
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from bench.queueing import notes

URL = os.environ["BENCH_URL"]
broker: Any = RedisStreamBroker(URL).with_result_backend(RedisAsyncResultBackend(URL))


async def call_noop() -> int:
    """Call the no-op on the event loop: a plain function would go through a thread."""
    return notes.noop()


async def call_stamp(number: int) -> int:
    """Note the start, on the event loop."""
    return notes.stamp(number)


noop = broker.task(call_noop)
stamp = broker.task(call_stamp)


async def prepare() -> None:
    """Connect, and make the stream."""
    await broker.startup()


async def one(number: int | None = None) -> None:
    """Enqueue a call."""
    if number is None:
        await noop.kiq()
    else:
        await stamp.kiq(number)


def done(count: int) -> int:
    """Return how many results there are."""
    with redis.Redis.from_url(URL) as client:
        return sum(1 for _ in client.scan_iter(count=5000, _type="string"))
