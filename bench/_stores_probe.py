"""One measurement of a store in a fresh interpreter: `main()` reads its name and options, prints what it found as JSON.

Imported, never run as a script: stored jobs name the function `work` by this module.
"""

from __future__ import annotations

import importlib
import itertools
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

EQUAL = {"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
"""What the libraries have different defaults for."""
BATCH = 1000

_calls = itertools.count()
_executed = 0


def work() -> None:
    """Count a call; `next` of a counter is atomic and costs next to nothing."""
    next(_calls)


def executed() -> int:
    """Return how many functions have been called since this was last asked."""
    global _executed
    before, _executed = _executed, next(_calls)
    return _executed - before


def make_store(library: str, url: str) -> Any:
    """Make a library's store for an address, with the library's own defaults."""
    kind = "redis" if url.startswith("redis:") else "sqlalchemy"
    module = importlib.import_module(f"{library}.jobstores.{kind}")
    if kind == "sqlalchemy":
        return module.SQLAlchemyJobStore(url)
    if library == "mainspring":
        return module.RedisJobStore(url=url)
    host, _, port = url.removeprefix("redis://").removesuffix("/0").partition(":")
    return module.RedisJobStore(host=host, port=int(port))


def make_scheduler(library: str, url: str) -> tuple[Any, Any]:
    """Start a paused scheduler with its default executor on a store."""
    # What a saturated scheduler has to say about skipped fires would be most of its work.
    logging.disable(logging.WARNING)
    store = make_store(library, url)
    scheduler = importlib.import_module(f"{library}.schedulers.background").BackgroundScheduler(
        timezone="UTC", jobstores={"default": store}
    )
    scheduler.start(paused=True)
    return scheduler, store


# -- filling -------------------------------------------------------------------------------------------------------


def our_jobs(count: int, period: float, first: float, prefix: str) -> list[Any]:
    """Make jobs as `add_job` makes them, to be stored in bulk."""
    from mainspring.clock import to_us
    from mainspring.job import Job, make_call
    from mainspring.triggers.interval import IntervalTrigger

    moment = datetime.fromtimestamp(first, UTC)
    trigger = IntervalTrigger(seconds=period, start_date=moment, timezone="UTC")
    call = make_call(work, (), {}, None)
    return [Job(f"{prefix}{number}", call, trigger, at=to_us(moment)) for number in range(count)]


def fill(url: str, jobs: int, period: float, first: float, idle: int = 0) -> dict[str, float]:
    """Store jobs that come due together from `first` on, and others that do not, in bulk; ours only."""
    store = make_store("mainspring", url)
    batches = [our_jobs(jobs, period, first, "due-")] if jobs else []
    batches += [our_jobs(idle, 3600, first + 36_000, "idle-")] if idle else []
    begun, cpu = time.perf_counter(), time.process_time()
    for batch in batches:
        for start in range(0, len(batch), BATCH):
            store.add_jobs(batch[start : start + BATCH])
    found = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - begun, "count": jobs + idle}
    store.shutdown()
    return found


def add(library: str, url: str, count: int, budget: float) -> dict[str, float]:
    """Add interval jobs one by one, as many as fit into `budget` seconds."""
    scheduler, _ = make_scheduler(library, url)
    begun, cpu, done = time.perf_counter(), time.process_time(), 0
    while done < count and time.perf_counter() - begun < budget:
        scheduler.add_job(work, "interval", seconds=3600)
        done += 1
    return {"count": done, "cpu": time.process_time() - cpu, "wall": time.perf_counter() - begun}


# -- firing --------------------------------------------------------------------------------------------------------


class Steps:
    """Counts the steps that a store was asked to take, and those it refused because another node had been first."""

    def __init__(self, store: Any) -> None:
        self.asked = self.refused = 0
        self._fire = store.fire
        store.fire = self

    def __call__(self, firings: Any, lease: float) -> Any:
        """Fire and count."""
        answers = self._fire(firings, lease)
        self.asked += len(answers)
        self.refused += answers.count(None)
        return answers


def fire(
    library: str, url: str, jobs: int, period: float, warm: float, seconds: float, filled: bool = False
) -> dict[str, float]:
    """Let jobs come due every `period` seconds and count what is executed between two instants.

    With `filled`, they are in the store already, and other processes may be firing them too.
    """
    scheduler, store = make_scheduler(library, url)
    if not filled and library == "mainspring":
        store.add_jobs(our_jobs(jobs, period, time.time(), "due-"))
    elif not filled:
        for _ in range(jobs):
            scheduler.add_job(work, "interval", seconds=period, next_run_time=datetime.now(UTC), **EQUAL)
    steps = Steps(store) if library == "mainspring" else None
    print("ready", flush=True)
    sys.stdin.readline()
    scheduler.resume()
    time.sleep(warm)
    # The server's CPU time is read by the one who started it, when it is told that the window opens and closes.
    print("begin", flush=True)
    executed()
    begun, cpu = time.perf_counter(), time.process_time()
    asked, refused = (steps.asked, steps.refused) if steps else (0, 0)
    time.sleep(seconds)
    print("end", flush=True)
    done, wall, cpu = executed(), time.perf_counter() - begun, time.process_time() - cpu
    found = {"executed": done, "cpu": cpu, "wall": wall}
    if steps:
        found |= {"asked": steps.asked - asked, "refused": steps.refused - refused}
        found["missed"] = store.counters()["missed"]
    return found


MEASUREMENTS: dict[str, Callable[..., dict[str, float]]] = {"fill": fill, "add": add, "fire": fire}


def main() -> None:
    """Measure what the command line names."""
    name, options = sys.argv[1:]
    print(json.dumps(MEASUREMENTS[name](**json.loads(options))), flush=True)
    os._exit(0)  # waiting for what a saturated scheduler still has to do would take longer than the measurement
