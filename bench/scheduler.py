"""Compare mainspring's scheduler with APScheduler 3: `python3 run.py bench scheduler [SUBJECT ...] [--quick]`.

Everything uses the memory store and the default thread pool. The libraries take turns, each measurement in a process of
its own, several rounds, and the best of each counts. Rates are per second of CPU time where one thread does all the
work: on a busy machine that is what can be compared.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

PROBE = Path(__file__).with_name("_scheduler_probe.py")
PEER, OURS = "apscheduler", "mainspring"
BOTH = (PEER, OURS)

Found = dict[str, Any]


class Add(NamedTuple):
    """So many jobs, added in so many rounds."""

    jobs: int
    rounds: int


class Fire(NamedTuple):
    """So many jobs due every so many seconds, at the same instants or one after another."""

    jobs: int
    period: float
    spread: bool = False
    saturated: bool = False


class Scale(NamedTuple):
    """So many stored jobs, and whether the peer gets that far in reasonable time."""

    stored: int
    peer: bool = True


class Cron(NamedTuple):
    """An expression, the days to walk through, how many times faster it should be."""

    expression: str
    days: int
    target: float


class Effort(NamedTuple):
    """How much of everything."""

    adds: Sequence[Add]
    budget: float
    fires: Sequence[Fire]
    rounds: int
    seconds: float
    due: Fire
    scales: Sequence[Scale]
    stored: int
    crons: Sequence[Cron]
    least: float
    imports: int


FULL = Effort(
    adds=(Add(1_000, 9), Add(10_000, 7), Add(100_000, 3), Add(1_000_000, 2)),
    budget=30.0,
    fires=(Fire(1_000, 1), Fire(10_000, 1), Fire(1_000, 1, spread=True), Fire(10_000, 0.1, saturated=True)),
    rounds=3,
    seconds=6.0,
    due=Fire(1_000, 1),
    scales=(Scale(1_000), Scale(10_000), Scale(100_000), Scale(1_000_000, peer=False)),
    stored=100_000,
    crons=(Cron("*/5 * * * *", 31, 5), Cron("0 9 * * mon-fri", 1826, 10), Cron("0 0 29 2 *", 27_000, 10)),
    least=0.15,
    imports=15,
)
QUICK = Effort(
    adds=(Add(1_000, 1),),
    budget=5.0,
    fires=(Fire(100, 0.1), Fire(100, 0.1, spread=True), Fire(200, 0.01, saturated=True)),
    rounds=1,
    seconds=0.2,
    due=Fire(100, 0.1),
    scales=(Scale(100), Scale(1_000)),
    stored=1_000,
    crons=(Cron("*/5 * * * *", 1, 5), Cron("0 9 * * mon-fri", 30, 10), Cron("0 0 29 2 *", 3_000, 10)),
    least=0.001,
    imports=1,
)


class Table:
    """Rows of text under a title, aligned; the last column says whether a target was met."""

    def __init__(self, title: str, *header: str) -> None:
        self.title = title
        self.rows = [header]
        self.notes: list[str] = []

    def add(self, *cells: str) -> None:
        """Append a row."""
        self.rows.append(cells)

    def show(self) -> None:
        """Print the table."""
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        print(f"\n{self.title}\n")
        for number, row in enumerate(self.rows):
            cells = [cell.rjust(width) for cell, width in zip(row[:-1], widths, strict=False)]
            print("  ".join([*cells, row[-1]]).rstrip())
            if not number:
                print("  ".join("-" * width for width in widths).rstrip())
        for note in self.notes:
            print(note)
        sys.stdout.flush()


class Targets:
    """Counts the targets that were met and missed; a quick run names them without judging."""

    def __init__(self, quick: bool) -> None:
        self.quick = quick
        self.met = self.missed = 0

    def at_least(self, target: float, value: float) -> str:
        """Judge a ratio that should not be smaller."""
        return self._judge(f">= {target:g}x", value >= target)

    def below(self, target: float, value: float) -> str:
        """Judge a ratio that should be smaller."""
        return self._judge(f"< {target:g}x", value < target)

    def _judge(self, target: str, met: bool) -> str:
        if self.quick:
            return target
        self.met += met
        self.missed += not met
        return f"{target} {'met' if met else 'MISSED'}"


def probe(name: str, **options: Any) -> Found:
    """Measure once, in a fresh interpreter."""
    return run(str(PROBE), name, json.dumps(options))


def run(*words: str) -> Found:
    """Run Python and read what it printed last."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    if done.returncode or not done.stdout:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    found: Found = json.loads(done.stdout.splitlines()[-1])
    return found


def in_turns(rounds: int, measure: Callable[..., Found], libraries: Sequence[str] = BOTH) -> dict[str, list[Found]]:
    """Measure the libraries alternately."""
    found: dict[str, list[Found]] = {library: [] for library in libraries}
    for _ in range(rounds):
        for library in libraries:
            found[library].append(measure(library=library))
    return found


def best_cpu(found: Sequence[Found], per: str) -> float:
    """Return the least CPU time per whatever was counted, in microseconds."""
    best: float = min(one["cpu"] / max(one[per], 1) for one in found)
    return best * 1e6


def times(ratio: float) -> str:
    """Show a ratio."""
    return f"{ratio:.1f}x"


def add_once(library: str, count: int, budget: float) -> Found:
    """Add jobs; the peer may have only so many seconds for it."""
    return probe("add", library=library, count=count, budget=budget if library == PEER else 3600)


def add(effort: Effort, targets: Targets) -> Table:
    """How fast are jobs added?"""
    table = Table(
        "add: interval jobs added one by one to a started scheduler; jobs per second of CPU time",
        *("jobs", "APScheduler", "mainspring", "ratio", "target"),
    )
    for jobs, rounds in effort.adds:
        found = in_turns(rounds, partial(add_once, count=jobs, budget=effort.budget))
        cost = {library: best_cpu(found[library], "count") for library in BOTH}
        ratio = cost[PEER] / cost[OURS]
        rates = [f"{1e6 / cost[library]:,.0f}" for library in BOTH]
        table.add(f"{jobs:,}", *rates, times(ratio), targets.at_least(5, ratio))
        reached = max(one["count"] for one in found[PEER])
        if reached < jobs:
            table.notes.append(f"APScheduler was stopped after {effort.budget:g} s, at {reached:,} of {jobs:,} jobs")
    return table


def fire(effort: Effort, targets: Targets) -> Table:
    """How many fires are sustained, how late, at which cost?"""
    table = Table(
        f"fire: interval jobs coming due for {effort.seconds:g} s; the ratio is of runs/s if saturated, else of CPU",
        *("jobs", "due", "library", "runs/s", "late p50 ms", "p99 ms", "CPU us/run", "ratio", "target"),
    )
    for case in effort.fires:
        measure = partial(probe, "fire", jobs=case.jobs, period=case.period, seconds=effort.seconds, spread=case.spread)
        found = in_turns(effort.rounds, measure)
        # Listening costs, so how late they are is measured apart.
        late = in_turns(1, partial(measure, listen=True))
        rate = {library: max(one["executed"] / one["seconds"] for one in found[library]) for library in BOTH}
        cost = {library: best_cpu(found[library], "executed") for library in BOTH}
        ratio = rate[OURS] / rate[PEER] if case.saturated else cost[PEER] / cost[OURS]
        how = "spread evenly" if case.spread else "at once"
        for library in BOTH:
            times_late = [f"{late[library][0].get(part, float('nan')) * 1e3:.1f}" for part in ("p50", "p99")]
            judged = targets.at_least(3, ratio) if case.saturated and library == OURS else ""
            table.add(
                f"{case.jobs:,}",
                f"every {case.period:g} s, {how}",
                library,
                f"{rate[library]:,.0f}",
                *times_late,
                f"{cost[library]:.1f}",
                times(ratio) if library == OURS else "",
                judged,
            )
    return table


def scale(effort: Effort, targets: Targets) -> Table:
    """Does a fire cost more when more jobs are stored?"""
    jobs, period = effort.due.jobs, effort.due.period
    table = Table(
        f"scale: CPU us per run with {jobs:,} of the stored jobs due every {period:g} s, the others later",
        *("stored", "APScheduler", "growth", "mainspring", "growth", "target"),
    )
    found: dict[tuple[str, int], list[Found]] = {}
    for _ in range(effort.rounds):
        for stored, peer in effort.scales:
            measure = partial(probe, "fire", jobs=jobs, period=period, seconds=effort.seconds, stored=stored)
            for library in BOTH if peer else (OURS,):
                found.setdefault((library, stored), []).append(measure(library=library))
    least, most = effort.scales[0].stored, effort.scales[-1].stored
    cost = {key: best_cpu(some, "executed") for key, some in found.items()}
    growth = {(library, stored): some / cost[library, least] for (library, stored), some in cost.items()}
    for stored, _ in effort.scales:
        cells = [f"{stored:,}"]
        for library in BOTH:
            key = library, stored
            cells += [f"{cost[key]:.1f}", f"{growth[key]:.2f}x"] if key in cost else ["-", "-"]
        table.add(*cells, targets.below(1.5, growth[OURS, stored]) if stored == most else "")
    if not all(one.peer for one in effort.scales):
        table.notes.append("-: adding that many jobs to APScheduler takes minutes")
    return table


def memory(effort: Effort, targets: Targets) -> Table:
    """How much memory does a stored job take?"""
    table = Table(
        "memory: growth of the process per stored interval job, in bytes",
        *("jobs", "APScheduler", "mainspring", "ratio", ""),
    )
    found = in_turns(min(effort.rounds, 2), partial(probe, "memory", count=effort.stored))
    size = {library: min(one["bytes"] for one in found[library]) for library in BOTH}
    table.add(f"{effort.stored:,}", *(f"{size[library]:,.0f}" for library in BOTH), times(size[PEER] / size[OURS]), "")
    return table


def cron(effort: Effort, targets: Targets) -> Table:
    """How fast is the next fire time found?"""
    table = Table(
        "cron: next fire times in Europe/Berlin per second of CPU time, walking from fire to fire",
        *("expression", "fires", "APScheduler", "croniter", "cronsim", "mainspring", "ratio", "target"),
    )
    for expression, days, target in effort.crons:
        found = probe("cron", expression=expression, days=days, rounds=2 * effort.rounds, least=effort.least)
        rates = found["rates"]
        ratio = rates[OURS] / rates[PEER]
        cells = [f"{rates[name]:,.0f}" for name in (PEER, "croniter", "cronsim", OURS)]
        table.add(expression, f"{found['fires']:,}", *cells, times(ratio), targets.at_least(target, ratio))
        table.notes += [f"{name} gives other times than mainspring for {expression}" for name in found["differ"]]
    return table


IMPORT = """
import time
begun = time.process_time()
from {}.schedulers.background import BackgroundScheduler
print('{{"cpu": %r, "imports": 1}}' % (time.process_time() - begun))
"""


def import_once(library: str) -> Found:
    """Import in a fresh interpreter that has loaded nothing else."""
    return run("-c", IMPORT.format(library))


def imports(effort: Effort, targets: Targets) -> Table:
    """How long does the import take that a program begins with?"""
    table = Table(
        "import: CPU ms of `from ... .schedulers.background import BackgroundScheduler`",
        *("APScheduler", "mainspring", "ratio", "target"),
    )
    in_turns(1, import_once)  # compiles what was not compiled yet
    found = in_turns(effort.imports, import_once)
    cost = {library: best_cpu(found[library], "imports") / 1e3 for library in BOTH}
    ratio = cost[PEER] / cost[OURS]
    table.add(*(f"{cost[library]:.1f}" for library in BOTH), times(ratio), targets.at_least(1, ratio))
    return table


SUBJECTS = {"add": add, "fire": fire, "scale": scale, "memory": memory, "cron": cron, "import": imports}


def main(arguments: Sequence[str]) -> int:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(prog="bench scheduler", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"{', '.join(SUBJECTS)}; all by default")
    parser.add_argument(
        "--quick", action="store_true", help="a small run, to see that it works; its figures say little"
    )
    options = parser.parse_args(arguments)
    unknown = [name for name in options.subjects if name not in SUBJECTS]
    if unknown:
        parser.error(f"no subject is called {unknown[0]!r}; there are {', '.join(SUBJECTS)}")
    names = ("mainspring", "apscheduler", "croniter", "cronsim")
    libraries = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    print(f"{platform.python_implementation()} {platform.python_version()}, {libraries}")
    print(
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start"
    )
    if options.quick:
        print("A quick run: it shows that everything works, its figures say little.")
    targets = Targets(options.quick)
    with tempfile.TemporaryDirectory() as folder:
        # As on a user's machine everything is compiled once, whatever the environment says here.
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        for name in options.subjects or SUBJECTS:
            SUBJECTS[name](QUICK if options.quick else FULL, targets).show()
    if not options.quick:
        print(f"\ntargets: {targets.met} met, {targets.missed} missed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
