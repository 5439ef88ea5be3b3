"""huey's side of the comparison of queues, on Redis or SQLite."""

# mypy: disable-error-code="import-not-found, import-untyped"
from __future__ import annotations

import os
from typing import Any

from huey import RedisHuey, SqliteHuey

from bench.queueing import notes

URL = os.environ["BENCH_URL"]
huey: Any = RedisHuey(url=URL) if URL.startswith("redis") else SqliteHuey(filename=URL.removeprefix("sqlite:///"))
noop = huey.task()(notes.noop)
stamp = huey.task()(notes.stamp)


def one(number: int | None = None) -> None:
    """Enqueue a call."""
    if number is None:
        noop()
    else:
        stamp(number)


def done(count: int) -> int:
    """Return how many results there are."""
    found: int = huey.result_count()
    return found
