"""Compare our queue with its peers: `python3 run.py bench queue [SUBJECT ...] [--store S] [--library L] [--quick]`.

The same no-op everywhere, results kept where a library can, each peer with its documented defaults and quiet logging,
in an environment of its own (build/bench-queue, from bench/peers.txt). Each measurement has an empty database. Servers
are started for the purpose: PostgreSQL waits for the disk, Redis does not.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import os
import platform
import signal
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# With an underscore: `python bench/NAME.py` puts this folder first, and the standard library imports its own `queue`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.queueing.contenders import CONTENDERS, OURS, Contender, peer_versions, set_up_peers
from bench.queueing.measure import (
    LAYERS,
    Broken,
    Executed,
    Put,
    measure_enqueue,
    measure_execute,
    measure_idle,
    measure_layers,
)
from bench.scheduler import Table, times
from bench.stores import BEDS, Bed, Verdicts
from tests.servers import MissingServer


class Effort(NamedTuple):
    """How much of everything; an execution is sized to take `seconds` and stopped after twice that."""

    put_seconds: float
    bulk: int
    seconds: float
    workers: Sequence[int]
    rounds: int
    latencies: int
    gap: float
    idle: float


FULL = Effort(
    put_seconds=3.0, bulk=20_000, seconds=6.0, workers=(1, 2), rounds=2, latencies=300, gap=0.02, idle=30.0
)  # fmt: skip
QUICK = Effort(put_seconds=0.3, bulk=1000, seconds=0.5, workers=(1, 2), rounds=1, latencies=30, gap=0.02, idle=5.0)

EXECUTE = {"redis": 10.0, "sqlite": 8.0, "postgresql": 2.0}
"""How many times the best peer's rate is aimed at."""

Pairs = Sequence[tuple[Contender, Bed]]
Results = dict[Contender, Any]


def survey(table: Table, pairs: Pairs, measure: Callable[[Contender, Bed], Any]) -> Results:
    """Measure all contenders; one that breaks is noted below the table, and the others go on."""
    results: Results = {}
    for contender, bed in pairs:
        print(f"  {contender.name} on {contender.store} ...", file=sys.stderr, flush=True)
        try:
            results[contender] = measure(contender, bed)
        except Broken as broken:
            table.notes.append(str(broken))
    return results


def in_rounds(
    effort: Effort, table: Table, pairs: Pairs, measure: Callable[[Contender, Bed, Any], Any], best: Callable[..., Any]
) -> Results:
    """Measure all contenders in turn, several times: a busy moment of the machine must not hit one of them only.

    `measure` is given what was found before, and `best` makes one of two findings.
    """
    found: Results = {}
    for _ in range(effort.rounds):
        for contender, now in survey(table, pairs, lambda each, bed: measure(each, bed, found.get(each))).items():
            found[contender] = best(found[contender], now) if contender in found else now
    return {contender: found[contender] for contender, _ in pairs if contender in found}


def peers_of(ours: Contender, results: Results) -> dict[Contender, Any]:
    """Return what the peers on the same store have reached."""
    return {each: found for each, found in results.items() if each.store == ours.store and not each.is_ours}


def ratio_to(value: float, best: float) -> str:
    """Show a ratio, nothing if there is nothing to compare with."""
    return times(value / best) if best else ""


# -- the tables ------------------------------------------------------------------------------------------------------


def enqueue(effort: Effort, pairs: Pairs, targets: Verdicts) -> Table:
    """How fast are calls enqueued, with no worker there?"""
    table = Table(
        f"enqueue: no-ops from one process, singly for {effort.put_seconds:g} s, {effort.bulk:,} in bulk, "
        f"per second, best of {effort.rounds}",
        *("store", "library", "singly/s", "CPU us", "in bulk/s", "CPU us", "singly", "in bulk", "target"),
    )

    def measure(contender: Contender, bed: Bed, before: Put | None) -> Put:
        return measure_enqueue(contender, bed, effort.put_seconds, effort.bulk)

    results = in_rounds(effort, table, pairs, measure, Put.best)
    for contender, put in results.items():
        ratios, judged = ["", ""], ""
        peers = peers_of(contender, results)
        if contender.is_ours and peers:
            best = max(peer.single for peer in peers.values())
            # A peer that has no bulk enqueues as fast as it can: one by one.
            best_bulk = max(max(peer.single, peer.bulk) for peer in peers.values())
            ratios = [ratio_to(put.single, best), ratio_to(put.bulk, best_bulk)]
            judged = f"bulk {targets.at_least(3, put.bulk / best_bulk)}"
            huey = [peer.single for each, peer in peers.items() if each.library == "huey"]
            if contender.store == "redis" and huey:
                judged += f", singly {targets.at_least(0.8, put.single / huey[0])} huey"
        bulk = [f"{put.bulk:,.0f}", f"{put.bulk_cpu:,.0f}"] if put.bulk else ["-", "-"]
        row = [f"{put.single:,.0f}", f"{put.single_cpu:,.0f}", *bulk, *ratios, judged]
        table.add(contender.store, contender.name, *row)
    return table


def execute(effort: Effort, pairs: Pairs, targets: Verdicts) -> Table:
    """How many no-ops does a worker execute, and two?"""
    table = Table(
        f"execute: no-ops that were enqueued before, for about {effort.seconds:g} s, best of {effort.rounds}; "
        "acknowledged: all outcomes saved, too; CPU us per run",
        *("store", "library", "workers", "runs", "execute/s", "acknowledged/s", "CPU us", "server's", "RSS MB"),
        *("ratio", "target"),
    )
    for workers in effort.workers:

        def measure(contender: Contender, bed: Bed, before: Executed | None, workers: int = workers) -> Executed:
            pace = contender.pace * workers if before is None else before.rate
            return measure_execute(contender, bed, workers, max(20, round(pace * effort.seconds)), effort.seconds * 2)

        results = in_rounds(effort, table, pairs, measure, Executed.best)
        for contender, one in results.items():
            ratio, judged = "", ""
            best = max((peer.acknowledged for peer in peers_of(contender, results).values()), default=0.0)
            if contender.is_ours and best:
                ratio = times(one.acknowledged / best)
                judged = targets.at_least(EXECUTE[contender.store], one.acknowledged / best)
            rates = [f"{one.rate:,.0f}", f"{one.acknowledged:,.0f}", f"{one.cpu:,.0f}", f"{one.server:,.0f}"]
            row = [str(workers), f"{one.runs:,}", *rates, f"{one.rss / 1e6:,.0f}", ratio, judged]
            table.add(contender.store, contender.name, *row)
    return table


def idle(effort: Effort, pairs: Pairs, targets: Verdicts) -> Table:
    """How soon does an idle worker start a call, and what does idling cost?"""
    table = Table(
        f"idle: one idle worker; {effort.latencies} single enqueues {effort.gap * 1e3:g} ms apart, ms from before the "
        f"enqueue to the start; then CPU over {effort.idle:g} s, % of a core",
        *("store", "library", "p50 ms", "p99 ms", "CPU %", "server's %", "RSS MB", "p50 ratio", "target"),
    )
    results = survey(
        table, pairs, lambda contender, bed: measure_idle(contender, bed, effort.latencies, effort.gap, effort.idle)
    )
    p50 = {each: statistics.median(found.latencies) for each, found in results.items()}
    for contender, found in results.items():
        ratio, judged = "", ""
        if contender.is_ours:
            judged = targets.judge("idle < 0.2 %", found.cpu < 0.002)
            best = min((p50[peer] for peer in peers_of(contender, results)), default=0.0)
            if best:
                ratio = f"{p50[contender] / best:.2f}x"
                judged = f"p50 {targets.below(1.5, p50[contender] / best)}, {judged}"
        p99 = sorted(found.latencies)[round(len(found.latencies) * 0.99) - 1]
        cpu = [f"{found.cpu:.2%}".rstrip("%"), f"{found.server:.2%}".rstrip("%")]
        row = [f"{p50[contender] * 1e3:.2f}", f"{p99 * 1e3:.2f}", *cpu, f"{found.rss / 1e6:,.0f}", ratio, judged]
        table.add(contender.store, contender.name, *row)
    return table


def layers(effort: Effort, pairs: Pairs, targets: Verdicts) -> Table:
    """Where does our own worker spend its time?"""
    ours = [(contender, bed) for contender, bed in pairs if contender.is_ours]
    table = Table(
        "layers: us per run in our own worker process, CPU and (in brackets) wall; threads work side by side",
        *("layer", *(contender.store for contender, _ in ours)),
    )
    results = survey(
        table,
        ours,
        lambda contender, bed: measure_layers(
            contender, bed, round(contender.pace * effort.seconds), effort.seconds * 2
        ),
    )
    sums: dict[Contender, float] = {}
    for layer, parts in LAYERS.items():
        cells = []
        for contender, _ in ours:
            found = results.get(contender, {})
            cpu, wall = (
                sum(found.get(part.lstrip("-"), (0.0, 0.0))[kind] * (-1 if part[0] == "-" else 1) for part in parts)
                for kind in (0, 1)
            )
            sums[contender] = sums.get(contender, 0.0) + cpu
            cells.append(f"{cpu:.1f} ({wall:.1f})" if wall > 0 else f"{cpu:.1f}")
        table.add(layer, *cells)
    table.add("together", *(f"{total:.1f}" for total in sums.values()))
    return table


SUBJECTS = {"enqueue": enqueue, "execute": execute, "idle": idle, "layers": layers}


def show_settings(contenders: Sequence[Contender]) -> None:
    """Print what is compared, in which versions and with which settings."""
    peers = list(dict.fromkeys(each.library for each in contenders if not each.is_ours))
    versions = [f"{name} {importlib.metadata.version(name)}" for name in (OURS, "redis", "hiredis", "psycopg")]
    print(f"{platform.python_implementation()} {platform.python_version()}, {', '.join(versions)}")
    if peers:
        print(f"peers: {', '.join(peer_versions(peers))}")
    load = f"load {os.getloadavg()[0]:.1f} at the start"
    print(f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {load}\n")
    for each in contenders:
        print(f"{each.store:>10}  {each.name:<13}  {each.command}: {each.settings}")


def main(arguments: Sequence[str]) -> int:
    """Print the tables that were asked for."""
    libraries = list(dict.fromkeys(each.library for each in CONTENDERS))
    parser = argparse.ArgumentParser(prog="bench queue", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"{', '.join(SUBJECTS)}; all by default")
    parser.add_argument("--store", action="append", choices=BEDS, help="only this one; may be repeated")
    parser.add_argument("--library", action="append", choices=libraries, help="only this one; may be repeated")
    parser.add_argument(
        "--quick", action="store_true", help="a small run, to see that it works; its figures say little"
    )
    options = parser.parse_intermixed_args(arguments)
    unknown = [name for name in options.subjects if name not in SUBJECTS]
    if unknown:
        parser.error(f"no subject is called {unknown[0]!r}; there are {', '.join(SUBJECTS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped
    wanted = [each for each in CONTENDERS if each.library in (options.library or libraries)]
    wanted = [each for each in wanted if each.store in (options.store or BEDS)]
    if any(not each.is_ours for each in wanted):
        set_up_peers()
    show_settings(wanted)
    if options.quick:
        print("A quick run: it shows that everything works, its figures say little.")
    targets = Verdicts(quick=options.quick)
    with contextlib.ExitStack() as stack:
        beds = {}
        for name in dict.fromkeys(each.store for each in wanted):
            try:
                beds[name] = BEDS[name](stack)
            except MissingServer as missing:
                print(missing, file=sys.stderr)
        pairs = [(each, beds[each.store]) for each in wanted if each.store in beds]
        for name in options.subjects or SUBJECTS:
            SUBJECTS[name](QUICK if options.quick else FULL, pairs, targets).show()
    if not options.quick:
        print(f"\ntargets: {targets.met} met, {targets.missed} missed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
