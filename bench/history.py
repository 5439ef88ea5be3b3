"""Does a call cost more when a million runs have ended, or a million jobs are stored?

`python3 run.py bench history [--runs N] [--jobs N] [--stores sqlite postgresql redis]`. Each store is filled twice:
with runs that have ended, and with jobs that are due tomorrow. The same calls are then measured there and on a store
beside it that has nothing but some pages of ended runs, in turns, in one process. Counted is the CPU time of that
process and of the server, of which the best of some rounds is taken, so a busy machine hardly matters. The target is a
growth of at most 1.5. The bytes are those that the filling has added, with all indexes.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from bench._ended_runs import ended_run
from bench.flows import SERVERS
from mainspring.core.instants import SECOND, from_us
from mainspring.core.job import Job
from mainspring.core.plan import Place, firing, plan
from mainspring.core.run import Outcome, Report, Result, Run, Status
from mainspring.core.transitions import conclude
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.jobstores.opening import open_for_app
from mainspring.testing.conformance.helpers import CALL, LEASE, claim
from mainspring.triggers.interval import IntervalTrigger

TARGET = 1.5
BATCH = 2000
"""Records that are filled in by one call."""
PART = 100
"""Runs or jobs of one measured call, as in a busy node."""
CALLS = 20
"""Calls of each kind in a round."""
FULL_PAGES_RUNS = 2500
"""Ended runs in every store, so that a first page is full everywhere."""
DAY = 86_400 * SECOND
_numbers = count()


# -- filling -------------------------------------------------------------------------------------------------------


def ended_runs(number: int, now: int) -> Iterator[Run]:
    """Make runs that have ended during the last week, one in fifty of them badly."""
    chance = random.Random(3)
    for each in range(number):
        made = now - 7 * DAY + 7 * DAY * each // number
        yield ended_run(f"{number:07}{made:016x}{each:08x}", each, made, int(chance.uniform(0.01, 3) * SECOND))


def fill_runs(store: JobStore, number: int) -> None:
    """Store runs that have ended."""
    batch: list[Run] = []
    for done, run in enumerate(ended_runs(number, store.beat()), 1):
        batch.append(run)
        if len(batch) == BATCH or done == number:
            store.add_runs(batch)
            batch.clear()
            show(done, number, "runs")


def fill_jobs(store: JobStore, number: int) -> None:
    """Store jobs that are due between one and two days from now."""
    now = store.beat()
    for start in range(0, number, BATCH):
        jobs = []
        for each in range(start, min(number, start + BATCH)):
            at = now + DAY + DAY * each // number
            trigger = IntervalTrigger(seconds=86_400, start_date=from_us(at), timezone="UTC")
            jobs.append(Job(f"idle-{each}", CALL, trigger, at=at))
        store.add_jobs(jobs)
        show(start + len(jobs), number, "jobs")


def show(done: int, number: int, what: str) -> None:
    """Say how far the filling has come."""
    if sys.stderr.isatty() and (done % 20_000 == 0 or done == number):
        print(f"\r  {done:,} of {number:,} {what}", end="" if done < number else "\n", file=sys.stderr, flush=True)


# -- what is measured ----------------------------------------------------------------------------------------------


@dataclass
class Costs:
    """CPU microseconds for each run, job or page, of each kind of call; the best round counts."""

    best: dict[str, float] = field(default_factory=dict)

    def note(self, what: str, seconds: float, number: int) -> None:
        """Note a round."""
        self.best[what] = min(self.best.get(what, 1e9), seconds / number * 1e6)


class Clock:
    """CPU time of this process and of the server."""

    def __init__(self, pid: int | None) -> None:
        self._pid = pid

    def spent(self, work: Callable[[], object]) -> float:
        """Return the CPU seconds that some work takes."""
        server, here = self._server(), time.process_time()
        work()
        here = time.process_time() - here
        return here + sum(seconds - server.get(pid, 0.0) for pid, seconds in self._server().items())

    def _server(self) -> dict[int, float]:
        """Return the CPU time so far of the server and of each process that it has started, to the microsecond."""
        found: dict[int, float] = {}
        if self._pid is not None:
            children = Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split()
            for pid in (self._pid, *map(int, children)):
                with suppress(OSError):  # it has just ended
                    threads = list(Path(f"/proc/{pid}/task").iterdir())
                    found[pid] = sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9
        return found


def measure(store: JobStore, clock: Clock, costs: Costs) -> None:
    """Add, claim, settle and fire, and find first pages; leave nothing that waits or is due."""
    number = PART * CALLS
    now = store.beat()
    runs = [Run(id=f"new-{next(_numbers)}", call=CALL, created_at=now, run_at=now) for _ in range(number)]
    parts = [runs[start : start + PART] for start in range(0, number, PART)]
    costs.note("add", clock.spent(lambda: [store.add_runs(part) for part in parts]), number)
    claimed: list[list[Run]] = []
    costs.note("claim", clock.spent(lambda: claimed.extend(claim(store, limit=PART) for _ in parts)), number)
    assert sum(map(len, claimed)) == number
    outcomes = [succeeded(part, now) for part in claimed]
    costs.note("settle", clock.spent(lambda: [store.settle(part) for part in outcomes]), number)
    trigger = IntervalTrigger(seconds=1_000_000, start_date=from_us(now), timezone="UTC")
    jobs = [Job(f"due-{next(_numbers)}", CALL, trigger, at=now) for _ in range(number)]
    store.add_jobs(jobs)
    fired: list[tuple[str, ...]] = []
    costs.note("due + fire", clock.spent(lambda: fire_all(store, fired)), number)
    assert len(fired) == number
    while waiting := claim(store, limit=PART):
        assert all(store.settle(succeeded(waiting, now)))
    store.remove_jobs([job.id for job in jobs])
    pages = {
        "find, all": RunQuery(),
        "find, failed": RunQuery(status=(Status.FAILED,)),
        "find, queue": RunQuery(queue="default", status=(Status.SUCCEEDED,)),
    }
    for what, query in pages.items():
        costs.note(what, clock.spent(lambda query=query: look(store, query)), CALLS)  # type: ignore[misc]


def succeeded(runs: Sequence[Run], now: int) -> list[Outcome]:
    """Make the outcomes of runs that have returned."""
    return [conclude(Report(run, Result.RETURNED, "done", started_at=now, finished_at=now), now, 0.5) for run in runs]


def look(store: JobStore, query: RunQuery) -> None:
    """Read the first page, as a dashboard does."""
    for _ in range(CALLS):
        store.find_runs(query, limit=50)


def fire_all(store: JobStore, fired: list[tuple[str, ...]]) -> None:
    """Fire all jobs that are due, a page at a time, as a scheduler does."""
    while True:
        page = store.due(PART, 10.0)
        if not page.jobs:
            return
        steps = [firing(due, plan(due, page.now), Place("default"), page.now) for due in page.jobs]
        answers = store.fire(steps, LEASE)
        fired += [answer for answer in answers if answer is not None]


# -- stores --------------------------------------------------------------------------------------------------------


class Bed:
    """A server or a folder with an empty store and a full one."""

    def __init__(self, name: str, stack: ExitStack) -> None:
        self.name = name
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mainspring-bench-")))
        self._server = SERVERS[name]().start() if name in SERVERS else None
        if self._server is not None:
            stack.callback(self._server.stop)
        self._stack = stack
        self.clock = Clock(self._server._process.pid if self._server and self._server._process else None)

    def open(self, name: str) -> JobStore:
        """Open a store of its own name."""
        url = self._server.url if self._server else f"sqlite:///{self._folder}/{name}.db"
        store = open_for_app(url, name, keep_runs=1_000_000_000)
        store.start(None, "default")
        self._stack.callback(store.shutdown)
        return store

    def settle_down(self) -> None:
        """Let the server do now what it would do soon, so that it is not counted."""
        if self.name == "postgresql":
            self._sql("VACUUM ANALYZE")

    def size(self) -> int:
        """Return the bytes that all stores here take."""
        if self._server is None:
            import sqlite3

            for file in self._folder.glob("*.db"):
                with sqlite3.connect(file) as connection:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                connection.close()
            return sum(os.path.getsize(file) for file in self._folder.glob("*.db"))
        if self.name == "redis":
            import redis

            with redis.Redis.from_url(self._server.url) as client:
                return int(client.info("memory")["used_memory"])
        return int(self._sql("SELECT pg_database_size(current_database())"))

    def _sql(self, statement: str) -> int:
        import psycopg

        assert self._server is not None
        with psycopg.connect(self._server.url.replace("+psycopg", ""), autocommit=True) as connection:
            found = connection.execute(statement)
            row = found.fetchone() if found.description else None
        return int(row[0]) if row else 0


def compare(name: str, what: str, number: int, fill: Callable[[JobStore, int], None], rounds: int) -> bool:
    """Fill a store and compare it with an empty one; print a line for each kind of call; return True if none grows."""
    with ExitStack() as stack:
        bed = Bed(name, stack)
        empty, full = bed.open("empty"), bed.open("full")
        for store in (empty, full):
            fill_runs(store, FULL_PAGES_RUNS)
        before, began = bed.size(), time.monotonic()
        fill(full, number)
        took = time.monotonic() - began
        bed.settle_down()
        each = (bed.size() - before) / number
        print(f"\n{name}: {number:,} {what}, {each:,.0f} bytes each, filled in {took:.0f} s", flush=True)
        costs = Costs(), Costs()
        for _ in range(rounds):
            for store, cost in zip((empty, full), costs, strict=True):
                measure(store, bed.clock, cost)
        fine = True
        for call, least in costs[0].best.items():
            growth = costs[1].best[call] / max(least, 0.1)
            fine = fine and growth <= TARGET
            words = "" if growth <= TARGET else f"  above {TARGET}"
            print(f"  {call:13} {least:8,.1f} -> {costs[1].best[call]:8,.1f} us {growth:6.2f}x{words}", flush=True)
        return fine


def main() -> int:
    """Measure and print; return 1 if something grows too much."""
    parser = argparse.ArgumentParser(prog="run.py bench history", description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stores", nargs="+", choices=("sqlite", *SERVERS), default=["sqlite", *SERVERS])
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; CPU us, this process and the server together")
    fine = True
    for name in options.stores:
        for what, number, fill in (("ended runs", options.runs, fill_runs), ("jobs", options.jobs, fill_jobs)):
            if number:
                fine = compare(name, what, number, fill, options.rounds) and fine
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
