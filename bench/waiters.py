"""How soon does somebody who waits for a run know that it has ended, and what do many waiters cost?

`python3 run.py bench waiters [--ends N] [--waiters N] [--stores sqlite postgresql redis]`. Another process ends one run
at a time, and tells when its `settle` began and when it returned; a thread of this process waits for that run as
`handle.result()` does. Then one process waits for many runs at once, which end together.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

from bench.flows import SERVERS
from mainspring.app.waiting import hub
from mainspring.app.waiting.waiter import Waiter
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.opening import open_for_app
from mainspring.testing.conformance.helpers import claim, make_run, succeed

LIMITS_MS = {"sqlite": 5.0, "postgresql": 2.0, "redis": 2.0}
PATIENCE_SECONDS = 60.0
SPIN_SECONDS = 0.0005
COUNTED = ("standings", "get_runs", "wait")
"""What a waiting process asks of a store."""


def open_store(url: str) -> JobStore:
    """Open the store of this benchmark."""
    store = open_for_app(url, "waiters")
    store.start(None, "default")
    return store


def end_runs(url: str, pipe: Connection) -> None:
    """Claim all runs, then end one or all whenever somebody says so, and answer with the times of `settle`."""
    store = open_store(url)
    claimed = {run.id: run for run in claim(store, limit=100_000)}
    pipe.send(len(claimed))
    while (wanted := pipe.recv()) is not None:
        outcomes = [succeed(store, claimed.pop(run_id), "done") for run_id in wanted]
        began = time.monotonic()
        for start in range(0, len(outcomes), 1000):
            store.settle(outcomes[start : start + 1000])
        pipe.send((began, time.monotonic()))
    store.shutdown()


def seated(store: JobStore, number: int) -> None:
    """Return when that many waiters sit at the hub, and it has looked for them."""
    its, until = hub.hub_of(store), time.monotonic() + PATIENCE_SECONDS
    while len(its._seats) < number and time.monotonic() < until:
        time.sleep(SPIN_SECONDS)
    looks = its.looks
    while its.looks == looks and time.monotonic() < until:
        time.sleep(SPIN_SECONDS)


def one_by_one(store: JobStore, pipe: Connection, run_ids: Sequence[str]) -> tuple[list[float], list[float]]:
    """Wait for one run at a time; return the milliseconds since its `settle` began and since that returned."""
    begun, returned = [], []
    for run_id in run_ids:
        ended: list[float] = []

        def wait(run_id: str = run_id, ended: list[float] = ended) -> None:
            waiter = Waiter([run_id], PATIENCE_SECONDS)
            hub.wait(lambda: store, waiter)
            waiter.ended()
            ended.append(time.monotonic())

        thread = threading.Thread(target=wait)
        thread.start()
        seated(store, 1)
        pipe.send([run_id])
        thread.join()
        began, done = pipe.recv()
        begun.append((ended[0] - began) * 1000)
        returned.append(max(0.0, (ended[0] - done) * 1000))
    return begun, returned


def together(store: JobStore, pipe: Connection, run_ids: Sequence[str]) -> tuple[float, float, dict[str, int]]:
    """Wait for all runs at once; return the milliseconds from their ends to the last return, CPU us each, and calls."""
    calls = dict.fromkeys(COUNTED, 0)
    originals = {name: getattr(store, name) for name in COUNTED}

    def counting(name: str) -> Any:
        def call(*args: Any) -> Any:
            calls[name] += 1
            return originals[name](*args)

        return call

    async def wait() -> tuple[float, float]:
        waits = asyncio.gather(*(hub.wait_async(lambda: store, Waiter([each], PATIENCE_SECONDS)) for each in run_ids))
        await asyncio.to_thread(seated, store, len(run_ids))
        for name in COUNTED:
            setattr(store, name, counting(name))
        cpu = time.process_time()
        await asyncio.to_thread(pipe.send, list(run_ids))
        await waits
        at, cpu = time.monotonic(), time.process_time() - cpu
        _, done = await asyncio.to_thread(pipe.recv)
        return max(0.0, at - done) * 1000, cpu / len(run_ids) * 1e6

    late, cpu = asyncio.run(wait())
    for name, original in originals.items():
        setattr(store, name, original)
    return late, cpu, calls


def measure(name: str, ends: int, waiters: int) -> bool:
    """Measure one store and print; return False if an end is known too late."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mainspring-bench-"))
        server = SERVERS[name]().start() if name in SERVERS else None
        if server is not None:
            stack.callback(server.stop)
        url = server.url if server else f"sqlite:///{folder}/waiters.db"
        store = open_store(url)
        stack.callback(store.shutdown)
        run_ids = [f"run-{number}" for number in range(ends + waiters)]
        for start in range(0, len(run_ids), 1000):
            store.add_runs([make_run(store, run_id) for run_id in run_ids[start : start + 1000]])
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        process = multiprocessing.get_context("spawn").Process(target=end_runs, args=(url, theirs), daemon=True)
        process.start()
        assert ours.recv() == len(run_ids)
        begun, returned = one_by_one(store, ours, run_ids[:ends])
        late, cpu, calls = together(store, ours, run_ids[ends:])
        ours.send(None)
        process.join()
        shown = ", ".join(f"{number} {call}" for call, number in calls.items())
        met = median(returned) <= LIMITS_MS[name]
        words = f"target {LIMITS_MS[name]:g} ms {'met' if met else 'missed'}"
        print(
            f"{name}: known {_quantiles(returned)} after settle returned ({words}), {_quantiles(begun)} after it began"
        )
        print(
            f"  {waiters:,} waiters, ended together: the last knows {late:.1f} ms later; {cpu:.0f} us each; {shown}",
            flush=True,
        )
        return met


def _quantiles(values: Sequence[float]) -> str:
    ranked = sorted(values)
    return f"p50 {median(ranked):.2f}, p95 {ranked[len(ranked) * 95 // 100]:.2f} ms"


def main() -> int:
    """Measure and print; return 1 if an end is known too late."""
    parser = argparse.ArgumentParser(prog="run.py bench waiters", description=__doc__)
    parser.add_argument("--ends", type=int, default=200)
    parser.add_argument("--waiters", type=int, default=1000)
    parser.add_argument("--stores", nargs="+", choices=tuple(LIMITS_MS), default=list(LIMITS_MS))
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    fine = [measure(name, options.ends, options.waiters) for name in options.stores]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
