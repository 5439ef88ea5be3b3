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
    before, _executed = _executed, next(_calls) + 1  # asking counts as well
    return _executed - before - 1


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


def fill(store: Any, count: int, period: float, first: float, prefix: str) -> None:
    """Store interval jobs in bulk, made as `add_job` makes them; ours only."""
    from mainspring.core.instants import to_us
    from mainspring.core.job import Job
    from mainspring.core.validation import make_call
    from mainspring.triggers.interval import IntervalTrigger

    moment = datetime.fromtimestamp(first, UTC)
    trigger = IntervalTrigger(seconds=period, start_date=moment, timezone="UTC")
    call, at = make_call(work, (), {}, None), to_us(moment)
    for start in range(0, count, BATCH):
        numbers = range(start, min(start + BATCH, count))
        store.add_jobs([Job(f"{prefix}-{number}", call, trigger, at=at) for number in numbers])


def add(library: str, url: str, count: int, budget: float, bulk: int) -> dict[str, float]:
    """Add interval jobs one by one, as many as fit into `budget` seconds; with ours, others in bulk then."""
    scheduler, store = make_scheduler(library, url)
    begun, cpu, done = time.perf_counter(), time.process_time(), 0
    while done < count and time.perf_counter() - begun < budget:
        scheduler.add_job(work, "interval", seconds=3600)
        done += 1
    found = {"count": done, "cpu": time.process_time() - cpu, "wall": time.perf_counter() - begun}
    if library == "mainspring":
        begun, cpu = time.perf_counter(), time.process_time()
        fill(store, bulk, 3600, time.time() + 3600, "bulk")
        found |= {"bulk": bulk, "bulk_cpu": time.process_time() - cpu, "bulk_wall": time.perf_counter() - begun}
    return found


# -- firing --------------------------------------------------------------------------------------------------------


class Steps:
    """Counts the steps that a store was asked to take, those it refused because another node had been first, and those
    that recorded a fire as missed because the job's last run had not ended."""

    def __init__(self, store: Any) -> None:
        self.asked = self.refused = self.missed = 0
        self._fire = store.fire
        store.fire = self

    def __call__(self, firings: Any, lease: float) -> Any:
        """Fire and count."""
        answers = self._fire(firings, lease)
        self.asked += len(answers)
        self.refused += answers.count(None)
        self.missed += sum(
            1 for step, answer in zip(firings, answers, strict=True) if step.missed and answer is not None
        )
        return answers

    def counted(self) -> dict[str, int]:
        """Return the counts so far."""
        return {"asked": self.asked, "refused": self.refused, "missed": self.missed}


def fire(
    library: str, url: str, jobs: int, period: float, warm: float, seconds: float, idle: int = 0
) -> dict[str, float]:
    """Let jobs come due every `period` seconds, `idle` others not, and count what is executed between two instants.

    Without jobs of its own, it fires those that other processes have stored.
    """
    scheduler, store = make_scheduler(library, url)
    steps = None
    if library == "mainspring":
        fill(store, idle, 3600, time.time() + 36_000, "idle")
        fill(store, jobs, period, time.time(), "due")
        steps = Steps(store)
    else:
        for _ in range(jobs):
            scheduler.add_job(work, "interval", seconds=period, next_run_time=datetime.now(UTC), **EQUAL)
    print("ready", flush=True)
    sys.stdin.readline()
    scheduler.resume()
    time.sleep(warm)
    # The server's CPU time is read by the one who started it, when it is told that the window opens and closes.
    print("begin", flush=True)
    executed()
    begun, cpu = time.perf_counter(), time.process_time()
    before = steps.counted() if steps else {}
    time.sleep(seconds)
    print("end", flush=True)
    done, wall, cpu = executed(), time.perf_counter() - begun, time.process_time() - cpu
    counted = steps.counted() if steps else {}
    return {"executed": done, "cpu": cpu, "wall": wall, **{name: counted[name] - before[name] for name in counted}}


MEASUREMENTS: dict[str, Callable[..., dict[str, float]]] = {"add": add, "fire": fire}


def main() -> None:
    """Measure what the command line names."""
    name, options = sys.argv[1:]
    print(json.dumps(MEASUREMENTS[name](**json.loads(options))), flush=True)
    os._exit(0)  # waiting for what a saturated scheduler still has to do would take longer than the measurement
