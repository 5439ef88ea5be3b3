"""One measurement in a fresh interpreter: `_scheduler_probe.py NAME '{"option": value}'` prints what it found as JSON.

A process of its own for each, so that no measurement pays for the heap, the threads or the caches of another.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import json
import logging
import os
import random
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

SEED = 20260329
CHUNK = 1000
EXECUTED = 2**12  # EVENT_JOB_EXECUTED of both libraries
EQUAL = {"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
"""What the libraries have different defaults for."""

_calls = itertools.count()


def work() -> float:
    """Count a call and say when it was; `next` of a counter is atomic and costs next to nothing."""
    next(_calls)
    return time.time()


def make_scheduler(library: str) -> Any:
    """Start a paused scheduler with its default store and executor."""
    # What a saturated scheduler has to say about skipped fires would be most of its work.
    logging.disable(logging.WARNING)
    scheduler = importlib.import_module(f"{library}.schedulers.background").BackgroundScheduler(timezone="UTC")
    scheduler.start(paused=True)
    return scheduler


def seconds_until_due(count: int) -> list[int]:
    """Return the same intervals between one hour and a day in every process."""
    chance = random.Random(SEED)
    return [chance.randrange(3600, 86_400) for _ in range(count)]


def add(library: str, count: int, budget: float) -> dict[str, float]:
    """Add interval jobs one by one, as many as fit into `budget` seconds."""
    add_job = make_scheduler(library).add_job
    intervals = seconds_until_due(count)
    add_job(work, "interval", seconds=3600)  # what only the first job costs is no matter of rates
    begun, cpu, done = time.perf_counter(), time.process_time(), 0
    while done < count and time.perf_counter() - begun < budget:
        for seconds in intervals[done : done + CHUNK]:
            add_job(work, "interval", seconds=seconds)
        done = min(done + CHUNK, count)
    return {"count": done, "cpu": time.process_time() - cpu, "wall": time.perf_counter() - begun}


def fire(
    library: str,
    jobs: int,
    period: float,
    seconds: float,
    *,
    stored: int = 0,
    spread: bool = False,
    listen: bool = False,
) -> dict[str, float]:
    """Let `jobs` interval jobs of `stored` come due every `period` seconds, and count what is executed.

    All are due at the same instants, or with `spread` evenly one after another. With `listen`, a listener learns how
    late each function was called.
    """
    scheduler = make_scheduler(library)
    for interval in seconds_until_due(stored - jobs):
        scheduler.add_job(work, "interval", seconds=interval, **EQUAL)
    lateness: list[float] = []
    if listen:
        scheduler.add_listener(
            lambda event: lateness.append(event.retval - event.scheduled_run_time.timestamp()), EXECUTED
        )
    begin = time.time() + 0.2 + jobs * 0.0004
    for number in range(jobs):
        first = datetime.fromtimestamp(begin + (period * number / jobs if spread else 0), UTC)
        scheduler.add_job(work, "interval", seconds=period, start_date=first, **EQUAL)
    scheduler.resume()
    rest = begin - 0.01 - time.time()
    if rest < 0:
        sys.exit(f"adding {jobs} jobs took {-rest:.1f} s too long: this machine is too busy to measure anything")
    time.sleep(rest)
    cpu = time.process_time()
    time.sleep(max(0.0, begin + seconds - 0.01 - time.time()))
    cpu, executed, seconds = time.process_time() - cpu, next(_calls), time.time() - begin  # it may have overslept
    return {"executed": executed, "cpu": cpu, "seconds": seconds, **percentiles(lateness)}


def percentiles(lateness: list[float]) -> dict[str, float]:
    """Return the median and the 99th of a hundred."""
    ordered = sorted(lateness)
    return {f"p{part}": ordered[len(ordered) * part // 100] for part in (50, 99)} if ordered else {}


def memory(library: str, count: int) -> dict[str, float]:
    """Measure by how much a process grows per stored job."""
    add_job = make_scheduler(library).add_job
    intervals = seconds_until_due(count)
    add_job(work, "interval", seconds=3600)
    gc.collect()
    before = resident()
    for seconds in intervals:
        add_job(work, "interval", seconds=seconds)
    gc.collect()
    return {"bytes": (resident() - before) / count}


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# -- cron ----------------------------------------------------------------------------------------------------------

BERLIN = ZoneInfo("Europe/Berlin")
BEGIN = datetime(2026, 3, 1, tzinfo=BERLIN)
EVE = BEGIN - timedelta(seconds=1)

Walk = Callable[[], list[datetime]]


def cron(expression: str, days: int, rounds: int, least: float) -> dict[str, Any]:
    """Walk from fire to fire through the same days with each library, in turns; return fires per CPU second."""
    fires = fires_within(expression, days)
    # A scheduler asks a little after the fire: `now` is a moment of its own.
    moments = [fire + timedelta(milliseconds=1) for fire in [BEGIN, *fires[:-1]]]
    walks: dict[str, Walk] = {
        "apscheduler": trigger_walk("apscheduler", expression, moments),
        "croniter": croniter_walk(expression, len(moments)),
        "cronsim": cronsim_walk(expression, len(moments)),
        "mainspring": trigger_walk("mainspring", expression, moments),
    }
    differ = [name for name, walk in walks.items() if walk() != fires]
    rates = dict.fromkeys(walks, 0.0)
    for _ in range(rounds):
        for name, walk in walks.items():
            rates[name] = max(rates[name], rate(walk, least))
    return {"rates": rates, "fires": len(fires), "differ": differ}


def rate(walk: Walk, least: float) -> float:
    """Return fires per CPU second of a walk repeated for `least` seconds."""
    begun, done = time.process_time(), 0
    while True:
        done += len(walk())
        passed = time.process_time() - begun
        if passed >= least:
            return done / passed


def cron_trigger(library: str, expression: str) -> Any:
    """Make the trigger of a crontab expression."""
    module = importlib.import_module(f"{library}.triggers.cron")
    return module.CronTrigger.from_crontab(expression, timezone=BERLIN)


def fires_within(expression: str, days: int) -> list[datetime]:
    """List the fires of so many days, by our own trigger."""
    trigger = cron_trigger("mainspring", expression)
    fires, fire = [], trigger.get_next_fire_time(None, BEGIN)
    while fire < BEGIN + timedelta(days):
        fires.append(fire)
        fire = trigger.get_next_fire_time(fire, fire)
    return fires


def trigger_walk(library: str, expression: str, moments: list[datetime]) -> Walk:
    """Ask a trigger for one fire after another, as its scheduler does."""
    ask = cron_trigger(library, expression).get_next_fire_time

    def walk() -> list[datetime]:
        fire = EVE
        return [fire := ask(fire, now) for now in moments]

    return walk


def croniter_walk(expression: str, count: int) -> Walk:
    """Ask croniter for one fire after another."""
    from croniter import croniter

    steps = croniter(expression, EVE, ret_type=datetime)

    def walk() -> list[datetime]:
        steps.set_current(EVE)
        return [steps.get_next() for _ in range(count)]

    return walk


def cronsim_walk(expression: str, count: int) -> Walk:
    """Ask cronsim for one fire after another; one of its objects can walk only once."""
    from cronsim import CronSim

    return lambda: list(itertools.islice(CronSim(expression, EVE), count))


MEASUREMENTS: dict[str, Callable[..., dict[str, Any]]] = {
    "add": add,
    "fire": fire,
    "memory": memory,
    "cron": cron,
}

if __name__ == "__main__":
    print(json.dumps(MEASUREMENTS[sys.argv[1]](**json.loads(sys.argv[2]))), flush=True)
    os._exit(0)  # waiting for what a saturated scheduler still has to do would take longer than the measurement
