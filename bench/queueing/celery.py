"""Celery's side of the comparison of queues: Redis as broker and as result backend."""

# mypy: disable-error-code="import-not-found, import-untyped"
from __future__ import annotations

import os
from typing import Any

import redis
from celery import Celery, group

from bench.queueing import notes

URL = os.environ["BENCH_URL"]
app: Any = Celery("bench", broker=URL, backend=URL)
noop = app.task(notes.noop, name="noop")
stamp = app.task(notes.stamp, name="stamp")


def one(number: int | None = None) -> None:
    """Enqueue a call."""
    if number is None:
        noop.delay()
    else:
        stamp.delay(number)


def many(count: int) -> None:
    """Enqueue calls as groups."""
    for start in range(0, count, 1000):
        group(noop.s() for _ in range(min(1000, count - start)))()


def done(count: int) -> int:
    """Return how many results there are."""
    with redis.Redis.from_url(URL) as client:
        return sum(1 for _ in client.scan_iter("celery-task-meta-*", count=5000))
