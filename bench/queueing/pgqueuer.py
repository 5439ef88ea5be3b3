"""pgqueuer's side of the comparison of queues; it keeps a log of what has succeeded, but no results."""

# mypy: disable-error-code="import-not-found, import-untyped"
from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from bench.queueing import notes

URL = os.environ["BENCH_URL"].replace("+psycopg", "")
queries: Any = None


async def call_noop(job: Any) -> None:
    """Call the no-op."""
    notes.noop()


async def call_stamp(job: Any) -> None:
    """Note the start."""
    notes.stamp(int(job.payload))


@contextlib.asynccontextmanager
async def worker() -> AsyncIterator[Any]:
    """Make what `pgq run` runs."""
    connection = await asyncpg.connect(URL)
    queuer = PgQueuer(AsyncpgDriver(connection))
    queuer.entrypoint("noop")(call_noop)
    queuer.entrypoint("stamp")(call_stamp)
    try:
        yield queuer
    finally:
        await connection.close()


async def prepare() -> None:
    """Connect, and make the tables."""
    global queries
    queries = Queries(AsyncpgDriver(await asyncpg.connect(URL)))
    await queries.install()


async def one(number: int | None = None) -> None:
    """Enqueue a call."""
    if number is None:
        await queries.enqueue("noop", None)
    else:
        await queries.enqueue("stamp", str(number).encode())


async def many(count: int) -> None:
    """Enqueue calls in bulk."""
    for start in range(0, count, 1000):
        size = min(1000, count - start)
        await queries.enqueue(["noop"] * size, [None] * size, [0] * size)


async def done(count: int) -> int:
    """Return how many jobs have left the queue."""
    rows = await queries.driver.fetch("SELECT count(*) AS waiting FROM pgqueuer")
    return count - int(rows[0]["waiting"])
