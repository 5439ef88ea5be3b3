"""Procrastinate's side of the comparison of queues; finished jobs stay, as by default, results are not kept."""

# mypy: disable-error-code="import-not-found, import-untyped"
from __future__ import annotations

import os
from typing import Any

from procrastinate import App, PsycopgConnector

from bench.queueing import notes

app: Any = App(connector=PsycopgConnector(conninfo=os.environ["BENCH_URL"].replace("+psycopg", "")))


async def call_noop() -> int:
    """Call the no-op on the event loop: a plain function would go through a thread."""
    return notes.noop()


async def call_stamp(number: int) -> int:
    """Note the start, on the event loop."""
    return notes.stamp(number)


noop = app.task(call_noop, name="noop")
stamp = app.task(call_stamp, name="stamp")


async def prepare() -> None:
    """Connect, and make the tables."""
    await app.open_async()
    await app.schema_manager.apply_schema_async()


async def one(number: int | None = None) -> None:
    """Enqueue a call."""
    if number is None:
        await noop.defer_async()
    else:
        await stamp.defer_async(number=number)


async def many(count: int) -> None:
    """Enqueue calls in bulk."""
    for start in range(0, count, 1000):
        await noop.batch_defer_async(*[{} for _ in range(min(1000, count - start))])


async def done(count: int) -> int:
    """Return how many jobs have succeeded."""
    row = await app.connector.execute_query_one_async(
        "SELECT count(*) AS done FROM procrastinate_jobs WHERE status = 'succeeded'"
    )
    return int(row["done"])
