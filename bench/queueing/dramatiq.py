"""dramatiq's side of the comparison of queues: results kept."""

# mypy: disable-error-code="import-not-found, import-untyped"
from __future__ import annotations

import os
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from bench.queueing import notes

URL = os.environ["BENCH_URL"]
broker: Any = RedisBroker(url=URL)
broker.add_middleware(Results(backend=RedisBackend(url=URL), store_results=True))
dramatiq.set_broker(broker)
noop = dramatiq.actor(notes.noop)
stamp = dramatiq.actor(notes.stamp)


def one(number: int | None = None) -> None:
    """Enqueue a call."""
    if number is None:
        noop.send()
    else:
        stamp.send(number)


def done(count: int) -> int:
    """Return how many messages are acknowledged."""
    left: int = broker.client.hlen("dramatiq:default.msgs")
    return count - left
