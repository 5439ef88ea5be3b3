"""Compare our stores with APScheduler 3's: `python3 run.py bench stores [SUBJECT ...] [--store NAME] [--quick]`.

SQLite is a file, PostgreSQL and Redis are servers started for the purpose with their default settings, so that
PostgreSQL waits for the disk and Redis does not. Each measurement has a process and an empty database of its own, and
the libraries take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from bench.scheduler import BOTH, OURS, PEER, Found, Table, Targets, best_cpu, times  # noqa: E402
from tests.servers import MissingServer, PostgreSQL, Redis  # noqa: E402

HERTZ = os.sysconf("SC_CLK_TCK")
PERIOD = 0.25
"""Seconds between the fires of a job. APScheduler walks through every fire that it has missed: not too short, then."""


class Effort(NamedTuple):
    """How much of everything; `peer_jobs` and `our_jobs` are more than a scheduler can fire in a period."""

    adds: int
    bulk: int
    budget: float
    peer_jobs: int
    our_jobs: int
    warm: float
    seconds: float
    rounds: int
    sharing: Sequence[int]
    due: int
    every: float
    stored: Sequence[int]


FULL = Effort(
    adds=1000, bulk=10_000, budget=5.0, peer_jobs=1000, our_jobs=5000, warm=1.0, seconds=5.0, rounds=2,
    sharing=(1, 2, 4), due=1000, every=0.5, stored=(1000, 100_000),
)  # fmt: skip
QUICK = Effort(
    adds=20, bulk=100, budget=2.0, peer_jobs=50, our_jobs=250, warm=0.2, seconds=0.3, rounds=1,
    sharing=(2, 4), due=50, every=0.1, stored=(50, 500),
)  # fmt: skip


class Verdicts(Targets):
    """Targets that are not ratios, too."""

    def judge(self, target: str, met: bool) -> str:
        """Judge by what the caller has found."""
        return self._judge(target, met)


# -- what is measured ------------------------------------------------------------------------------------------------


class Bed(ABC):
    """Where a store is put: gives each measurement an empty database, and knows what its server has cost."""

    name: str

    @abstractmethod
    @contextlib.contextmanager
    def empty(self) -> Iterator[str]:
        """Give the address of a database with nothing in it."""

    def server_cpu(self) -> float:
        """Return the CPU seconds that the server has spent so far."""
        return 0.0


class SQLiteBed(Bed):
    """A file; SQLite works inside the process."""

    name = "SQLite"

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mainspring-bench-")))
        self._numbers = itertools.count()

    @contextlib.contextmanager
    def empty(self) -> Iterator[str]:
        folder = self._folder / str(next(self._numbers))
        folder.mkdir()
        try:
            yield f"sqlite:///{folder / 'jobs.db'}"
        finally:
            shutil.rmtree(folder)


class PostgreSQLBed(Bed):
    """A server with a database per measurement."""

    name = "PostgreSQL"

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._server = stack.enter_context(PostgreSQL(durable=True))
        self._numbers = itertools.count()

    @contextlib.contextmanager
    def empty(self) -> Iterator[str]:
        name = f"bench{next(self._numbers)}"
        self._do(f"CREATE DATABASE {name}")
        try:
            yield self._server.url.removesuffix("postgres") + name
        finally:
            self._do(f"DROP DATABASE {name} WITH (FORCE)")

    def _do(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self._server.url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute(statement)

    def server_cpu(self) -> float:
        postmaster = self._server.pid
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        return process_cpu(postmaster, reaped=True) + sum(process_cpu(int(child)) for child in children)


class RedisBed(Bed):
    """A server, emptied before each measurement."""

    name = "Redis"

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._server = stack.enter_context(Redis())

    @contextlib.contextmanager
    def empty(self) -> Iterator[str]:
        import redis

        with redis.Redis.from_url(self._server.url) as client:
            client.flushall()
        yield self._server.url

    def server_cpu(self) -> float:
        return process_cpu(self._server.pid)


BEDS: dict[str, Callable[[contextlib.ExitStack], Bed]] = {
    "sqlite": SQLiteBed,
    "postgresql": PostgreSQLBed,
    "redis": RedisBed,
}


def process_cpu(pid: int, *, reaped: bool = False) -> float:
    """Return the CPU seconds of a process, with `reaped` also those of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):  # a backend that has just ended: its parent has its time now
        return 0.0
    return sum(int(field) for field in fields[11 : 15 if reaped else 13]) / HERTZ


class Probe:
    """A measurement in a fresh interpreter."""

    def __init__(self, name: str, **options: Any) -> None:
        self._words = [sys.executable, "-c", "import _stores_probe; _stores_probe.main()", name, json.dumps(options)]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            self._words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "PYTHONPATH": str(HERE)},
        )

    def expect(self, word: str) -> None:
        """Wait until it says the word."""
        said = self._line()
        if said != word:
            self._fail(f"said {said!r} instead of {word!r}")

    def go(self) -> None:
        """Let it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def found(self) -> Found:
        """Return what it has found."""
        said = self._line()
        if self._process.wait() or not said:
            self._fail("gave no result")
        answer: Found = json.loads(said)
        return answer

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def _fail(self, what: str) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.seek(0)
        sys.exit(f"{' '.join(self._words)} {what}:\n{self._errors.read()}")


def measure_fires(bed: Bed, library: str, processes: int, **options: Any) -> list[Found]:
    """Fire from processes that share a store, filled by the first; its find has the server's CPU time, too."""
    with bed.empty() as url:
        probes = [Probe("fire", library=library, url=url, **options)]
        options |= {"jobs": 0, "idle": 0}
        probes += [Probe("fire", library=library, url=url, **options) for _ in range(processes - 1)]
        for probe in probes:
            probe.expect("ready")
        for probe in probes:
            probe.go()
        for probe in probes:
            probe.expect("begin")
        server = bed.server_cpu()
        for probe in probes:
            probe.expect("end")
        server = bed.server_cpu() - server
        found = [probe.found() for probe in probes]
    found[0]["server"] = server
    return found


def per_run(found: Sequence[Found], part: str) -> float:
    """Return CPU microseconds per executed function, of some processes together."""
    spent: float = sum(one.get(part, 0.0) for one in found)
    total: int = sum(one["executed"] for one in found)
    return spent / max(total, 1) * 1e6


def rate_of(found: Sequence[Found]) -> float:
    """Return the functions executed per second, by some processes together."""
    total: float = sum(one["executed"] / one["wall"] for one in found)
    return total


def note_missed(table: Table, what: str, found: Sequence[Found]) -> None:
    """Say how many fires were recorded as missed: they cost as much as a run and are not counted as one."""
    missed = sum(one["missed"] for one in found)
    if missed:
        table.notes.append(f"{what}: {missed:,} fires came before the job's last run had ended, recorded as missed")


# -- the tables ------------------------------------------------------------------------------------------------------


def add(effort: Effort, beds: Sequence[Bed], targets: Verdicts) -> Table:
    """How fast are jobs added?"""
    table = Table(
        f"add: up to {effort.adds:,} interval jobs one by one to a started, paused scheduler, per second and CPU us "
        f"each; ours also {effort.bulk:,} by the store's add_jobs",
        *("store", "APScheduler/s", "CPU us", "mainspring/s", "CPU us", "ratio", "in bulk/s", "CPU us"),
    )
    for bed in beds:
        found: dict[str, list[Found]] = {library: [] for library in BOTH}
        for library in BOTH * effort.rounds:
            with bed.empty() as url:
                load = {"count": effort.adds, "budget": effort.budget, "bulk": effort.bulk}
                found[library].append(Probe("add", library=library, url=url, **load).found())
        rate = {library: max(one["count"] / one["wall"] for one in found[library]) for library in BOTH}
        cells = []
        for library in BOTH:
            cells += [f"{rate[library]:,.0f}", f"{best_cpu(found[library], 'count'):,.0f}"]
        bulk = max(one["bulk"] / one["bulk_wall"] for one in found[OURS])
        bulk_cpu = min(one["bulk_cpu"] / one["bulk"] for one in found[OURS]) * 1e6
        table.add(bed.name, *cells, times(rate[OURS] / rate[PEER]), f"{bulk:,.0f}", f"{bulk_cpu:,.0f}")
    return table


def fire(effort: Effort, beds: Sequence[Bed], targets: Verdicts) -> Table:
    """How many fires does one scheduler get through a store?"""
    table = Table(
        f"fire: more interval jobs than a scheduler can fire every {PERIOD:g} s, for {effort.seconds:g} s; CPU us per "
        "run",
        *("store", "library", "jobs", "runs/s", "scheduler's", "server's", "ratio", "target"),
    )
    jobs = {PEER: effort.peer_jobs, OURS: effort.our_jobs}
    for bed in beds:
        found: dict[str, list[Found]] = {library: [] for library in BOTH}
        for library in BOTH * effort.rounds:
            load = {"jobs": jobs[library], "period": PERIOD, "warm": effort.warm, "seconds": effort.seconds}
            found[library] += measure_fires(bed, library, 1, **load)
        best = {library: [max(found[library], key=lambda one: rate_of([one]))] for library in BOTH}
        ratio = rate_of(best[OURS]) / max(rate_of(best[PEER]), 1)
        for library in BOTH:
            table.add(
                bed.name,
                library,
                f"{jobs[library]:,}",
                f"{rate_of(best[library]):,.0f}",
                *(f"{per_run(best[library], part):,.0f}" for part in ("cpu", "server")),
                times(ratio) if library == OURS else "",
                targets.at_least(10, ratio) if library == OURS and bed.name != "Redis" else "",
            )
        note_missed(table, bed.name, best[OURS])
    return table


def shared(effort: Effort, beds: Sequence[Bed], targets: Verdicts) -> Table:
    """What do schedulers that share a Redis store get done, and how much in vain?"""
    table = Table(
        f"shared: {effort.our_jobs:,} interval jobs every {PERIOD:g} s, fired by processes that share a Redis store; "
        "CPU us per run",
        *("processes", "runs/s", "schedulers'", "server's", "server busy", "in vain", "target"),
    )
    for bed in [bed for bed in beds if bed.name == "Redis"]:
        for processes in effort.sharing:
            load = {"jobs": effort.our_jobs, "period": PERIOD, "warm": effort.warm, "seconds": effort.seconds}
            found = measure_fires(bed, OURS, processes, **load)
            asked = sum(one["asked"] for one in found)
            if not asked:
                sys.exit(f"{processes} schedulers fired nothing in {effort.seconds:g} s: there is nothing to compare")
            vain = sum(one["refused"] for one in found) / asked
            judged = ""
            if processes == 2:
                judged = targets.judge(">= 14,000/s", rate_of(found) >= 14_000)
            elif processes == 4:
                judged = targets.judge("< 1 % in vain", vain < 0.01)
            table.add(
                str(processes),
                f"{rate_of(found):,.0f}",
                *(f"{per_run(found, part):,.0f}" for part in ("cpu", "server")),
                f"{found[0]['server'] / found[0]['wall']:.0%}",
                f"{vain:.2%}",
                judged,
            )
            note_missed(table, f"{processes} processes", found)
    return table


def scale(effort: Effort, beds: Sequence[Bed], targets: Verdicts) -> Table:
    """Does a fire cost more when more jobs are stored?"""
    table = Table(
        f"scale: {effort.due:,} of the stored jobs due every {effort.every:g} s, the others later; CPU us per run",
        *("store", "stored", "runs/s", "scheduler's", "server's", "together", "growth", "target"),
    )
    for bed in beds:
        first = 0.0
        for stored in effort.stored:
            load = {"jobs": effort.due, "period": effort.every, "warm": effort.warm, "seconds": effort.seconds}
            rounds = [measure_fires(bed, OURS, 1, idle=stored - effort.due, **load) for _ in range(effort.rounds)]
            best = min(rounds, key=lambda found: per_run(found, "cpu") + per_run(found, "server"))
            costs = [per_run(best, part) for part in ("cpu", "server")]
            first = first or sum(costs)
            growth = sum(costs) / first
            table.add(
                bed.name,
                f"{stored:,}",
                f"{rate_of(best):,.0f}",
                *(f"{cost:,.0f}" for cost in (*costs, sum(costs))),
                f"{growth:.2f}x",
                targets.below(1.5, growth) if stored == effort.stored[-1] else "",
            )
    return table


SUBJECTS = {"add": add, "fire": fire, "shared": shared, "scale": scale}


def main(arguments: Sequence[str]) -> int:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(prog="bench stores", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"{', '.join(SUBJECTS)}; all by default")
    parser.add_argument("--store", action="append", choices=BEDS, help="only this one; may be repeated")
    parser.add_argument(
        "--quick", action="store_true", help="a small run, to see that it works; its figures say little"
    )
    options = parser.parse_intermixed_args(arguments)
    unknown = [name for name in options.subjects if name not in SUBJECTS]
    if unknown:
        parser.error(f"no subject is called {unknown[0]!r}; there are {', '.join(SUBJECTS)}")
    names = ("mainspring", "apscheduler", "sqlalchemy", "psycopg", "redis")
    libraries = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    print(f"{platform.python_implementation()} {platform.python_version()}, {libraries}")
    load = f"load {os.getloadavg()[0]:.1f} at the start"
    print(f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {load}")
    if options.quick:
        print("A quick run: it shows that everything works, its figures say little.")
    targets = Verdicts(quick=options.quick)
    with contextlib.ExitStack() as stack:
        beds = []
        for name in options.store or BEDS:
            try:
                beds.append(BEDS[name](stack))
            except MissingServer as missing:
                print(missing, file=sys.stderr)
        for name in options.subjects or SUBJECTS:
            SUBJECTS[name](QUICK if options.quick else FULL, beds, targets).show()
    print(f"\ntargets: {targets.met} met, {targets.missed} missed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
