"""RQ's side of the comparison of queues: results kept, as by default."""

# mypy: disable-error-code="import-not-found, import-untyped"
from __future__ import annotations

import os
from typing import Any

import redis
from rq import Queue

from bench.queueing import notes

queue: Any = Queue(connection=redis.Redis.from_url(os.environ["BENCH_URL"]))


def one(number: int | None = None) -> None:
    """Enqueue a call."""
    if number is None:
        queue.enqueue(notes.noop)
    else:
        queue.enqueue(notes.stamp, number)


def many(count: int) -> None:
    """Enqueue calls in bulk."""
    for start in range(0, count, 1000):
        queue.enqueue_many([Queue.prepare_data(notes.noop) for _ in range(min(1000, count - start))])


def done(count: int) -> int:
    """Return how many jobs have finished."""
    found: int = queue.finished_job_registry.count
    return found
