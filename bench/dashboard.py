"""How long the first byte of each page takes with many runs in the store.

`python3 run.py bench dashboard` fills a SQLite file and a Redis server of its own with a million runs and asks for
every page, in this process and without a socket. It prints the first time, the median and the 95th percentile, and the
CPU time, which a busy machine does not stretch. It ends with 1 if a page takes longer than 200 ms. `--quick` takes
50,000 runs, `--runs N` any number, `--store sqlite` one store only. `--url URL` takes a store of yours instead: it is
filled if it is empty, and kept, so that the next measurement needs no filling.
Answers that viewers share are forgotten before each request, so each one does the whole work.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from bench._ended_runs import ended_run
from mainspring import Mainspring
from mainspring.core.instants import SECOND
from mainspring.core.run import Run
from mainspring.dashboard import DashboardApp
from mainspring.dashboard.memo import forget
from tests.dashboard.shop import counted, make_shop, seed
from tests.servers import MissingServer, Redis

LIMIT_MS = 200.0
TRIES = 15
BATCH_RUNS = 2000
LEAST_SHOWN = 20_000
"""Show a bar from this many runs on."""
PAGES = (
    *("/", "/jobs", "/jobs/nightly-backup", "/timeline", "/timeline?by=queue", "/runs", "/runs?status=failed"),
    *("/runs?queue=payments&status=succeeded", "/runs?task=capture", "/runs?arg.order=12345", "/runs?after={after}"),
    *("/runs?status=delayed", "/runs?queue=exports", "/queues/exports"),
    *("/runs/{run}", "/queues", "/queues/payments", "/errors", "/errors?since=7d", "/tasks", "/nodes", "/broken"),
    *("/flows", "/queues?range=24h", "/jobs/nightly-backup?range=year", "/api/v1/metrics?by=queue"),
    *("/system", "/system/audit", "/api/v1/runs", "/api/v1/runs?status=pending", "/api/v1/runs/{run}"),
    *("/api/v1/stats", "/api/v1/jobs", "/api/v1/queues", "/api/v1/nodes", "/api/v1/errors", "/api/v1/tasks"),
)


def runs(number: int, now: int) -> Iterator[Run]:
    """Make runs that have ended, spread over a week."""
    chance = random.Random(3)
    for each in range(number):
        made = now - int(chance.uniform(60, 7 * 86_400) * SECOND)
        yield ended_run(f"{made:016x}{each:08x}", each, made, int(chance.uniform(0.01, 3) * SECOND))


def fill(app: Mainspring, number: int) -> None:
    """Write a shop with a past, and the runs."""
    seed(app)
    add(app, number)


def add(app: Mainspring, number: int) -> None:
    """Write the runs, in batches, and show how far it has come."""
    store, made, began = app.store, runs(number, app.now()), time.monotonic()
    written, shown = 0, 0
    while batch := list(islice(made, BATCH_RUNS)):
        store.add_runs([store.pack_run(run) for run in batch])
        if written % 20_000 == 0:  # the counters know some of them: adding all would take longer than the runs
            store.tallies(counted(batch))
        written += len(batch)
        share = written * 50 // number
        if number >= LEAST_SHOWN and share > shown:
            shown, took = share, time.monotonic() - began
            left = took * (number - written) / written
            bar = f"\r  [{'#' * share:50}] {written:,} runs, {took:.0f} s, {left:.0f} s left "
            print(bar, end="" if written < number else "\n", file=sys.stderr, flush=True)


async def first_byte(dashboard: DashboardApp, url: str) -> tuple[float, int]:
    """Ask for a page; return the milliseconds until its first byte, and its status."""
    path, _, query = url.partition("?")
    scope: dict[str, Any] = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1), "server": ("localhost", 80),
    }  # fmt: skip
    answered: list[tuple[float, int]] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answered.append((time.perf_counter(), message["status"]))

    began = time.perf_counter()
    await dashboard(scope, receive, send)
    at, status = answered[0]
    return (at - began) * 1000, status


def measure(app: Mainspring, name: str) -> bool:
    """Print how long each page takes; return False if one takes too long."""
    dashboard = DashboardApp(app)
    dashboard.warm_up()  # as a server does when it starts
    some = app.find(limit=200)
    names = {"run": some[100].id, "after": f"{some[150].record.created_at}.{some[150].id}"}
    fine = True
    print(
        f"{name}: {app.count():,} runs; first byte in ms\n{'page':42} {'first':>8} {'median':>8} {'p95':>8} {'cpu':>8}"
    )
    for page in PAGES:
        times, spent = [], time.process_time()
        for _ in range(TRIES):
            forget(app)
            took, status = asyncio.run(first_byte(dashboard, page.format(**names)))
            assert status == 200, (page, status)
            times.append(took)
        first = times[0]
        times.sort()
        p95 = times[-(-len(times) * 95 // 100) - 1]
        fine = fine and p95 <= LIMIT_MS
        words = "" if p95 <= LIMIT_MS else "  too long"
        cpu = (time.process_time() - spent) * 1000 / TRIES
        print(f"{page:42} {first:8.1f} {times[len(times) // 2]:8.1f} {p95:8.1f} {cpu:8.1f}{words}", flush=True)
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(prog="run.py bench dashboard", description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="50,000 runs")
    parser.add_argument("--store", choices=("sqlite", "redis"), help="only this one")
    parser.add_argument("--url", help="a store to fill once and to keep")
    options = parser.parse_args()
    number, fine = 50_000 if options.quick else options.runs, True
    if options.url:
        return 0 if one(options.url, options.url.partition(":")[0], number) else 1
    with tempfile.TemporaryDirectory() as folder:
        if options.store != "redis":
            fine = one(f"sqlite:///{Path(folder)}/shop.db", "SQLite", number)
    if options.store != "sqlite":
        try:
            with Redis() as server:
                fine = one(server.url, "Redis", number) and fine
        except MissingServer as error:
            print(error, file=sys.stderr)
    return 0 if fine else 1


def one(url: str, name: str, number: int) -> bool:
    """Fill a store and measure the pages on it."""
    app = make_shop(url)
    try:
        if not app.find(limit=1):
            fill(app, number)
        return measure(app, name)
    finally:
        app.close()


if __name__ == "__main__":
    sys.exit(main())
