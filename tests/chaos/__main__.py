"""Torment a store: `python3 run.py chaos --store sqlite|postgresql|mariadb|redis [--runs N --kills N --flows N]`."""

from __future__ import annotations

import argparse
import logging
import platform
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from mainspring import __version__
from tests.chaos.backs import BACKS
from tests.chaos.check import Checker, Finding, at_rest, tampered
from tests.chaos.flows.storm import rage
from tests.chaos.ledger import Reader
from tests.chaos.torment import JOBS, Plan, Torment


def torment(plan: Plan, folder: Path, *, busy: bool = False, show: bool = False) -> tuple[list[Finding], str]:
    """Do one chaos run; return what was found, and what there was."""
    begun = time.monotonic()
    back = BACKS[plan.store](folder)

    def tell(text: str) -> None:
        if show:
            print(f"\r{time.monotonic() - begun:5.0f} s  {text}  ", end="", file=sys.stderr, flush=True)

    try:
        run = Torment(plan, folder, back, tell)
        run.run()
        kept = {name: back.frame(name) for name in run.spoiled}
        version = back.version
    finally:
        back.close()
    checker = Checker(Reader(folder).fresh(), run.runs, plan.lease, busy=busy)
    jobs = {f"job{number}": job for number, job in enumerate(JOBS)}
    findings = checker.check(jobs)
    findings.append(tampered(checker.history, run.runs, run.spoiled, kept, run.whole))
    findings.append(at_rest(run.runs, run.left, run.counters, run.queues))
    counts = ", ".join(f"{number} {kind}s" for kind, number in run.counts.items())
    harmed = sum(map(len, checker.history.harm.values()))
    head = (
        f"{version}, mainspring {__version__}, Python {platform.python_version()}, seed {plan.seed}, lease "
        f"{plan.lease:g} s: {len(run.runs):,} runs, {counts} ({harmed} processes harmed; an outage is: "
        f"{back.outage}), {'clocks wrong by hours, ' if plan.clocks else ''}"
        f"{time.monotonic() - begun:.0f} s"
    )
    return findings, head


def storm(plan: Plan, folder: Path, kills: int) -> int:
    """Let a storm over flows and limits rage on a store of its own; return 1 if it broke a promise."""
    folder.mkdir(parents=True)
    back = BACKS[plan.store](folder)
    try:
        code, said = rage(back.url, folder, kills=kills, seed=plan.seed)
    finally:
        back.close()
    print(f"{plan.store}, flows and limits, seed {plan.seed}: {said}".rstrip())
    return int(code != 0)


def main() -> int:
    """Torment, print the invariants, return the exit code."""
    parser = argparse.ArgumentParser(prog="run.py chaos", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--store", choices=list(BACKS), required=True)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--kills", type=int, help="one per 500 runs unless given")
    parser.add_argument("--freezes", type=int, help="one per 10 kills unless given")
    parser.add_argument("--restarts", type=int, help="outages of the store: one per 20 kills unless given")
    parser.add_argument("--tampers", type=int, help="runs altered in the store: as many as kills unless given")
    parser.add_argument("--cuts", type=int, help="cuts of the network to a server: one per 10 kills unless given")
    parser.add_argument("--clocks", action=argparse.BooleanOptionalAction, default=True, help="wrong ones, that jump")
    parser.add_argument("--seed", type=int, default=None, help="random unless given")
    parser.add_argument("--lease", type=float, default=5.0)
    parser.add_argument("--flows", type=int, help="kills in a storm over flows and limits: as kills unless given")
    parser.add_argument("--folder", type=Path, help="where the ledgers and logs go; they are kept then")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    kills = options.runs // 500 if options.kills is None else options.kills
    plan = Plan(
        options.store,
        options.runs,
        kills,
        kills // 10 if options.freezes is None else options.freezes,
        kills // 20 if options.restarts is None else options.restarts,
        kills if options.tampers is None else options.tampers,
        random.SystemRandom().randrange(10**6) if options.seed is None else options.seed,
        options.lease,
        cuts=0 if options.store == "sqlite" else kills // 10 if options.cuts is None else options.cuts,
        clocks=options.clocks,
    )
    folder = options.folder or Path(tempfile.mkdtemp(prefix="mainspring-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    if options.runs:
        findings, head = torment(plan, folder, show=sys.stderr.isatty())
        print(f"\n{head}" if sys.stderr.isatty() else head)
        for finding in findings:
            print(finding.line())
        failed = sum(bool(finding.wrong) for finding in findings)
    if storm_kills := kills if options.flows is None else options.flows:
        failed += storm(plan, folder / "flows", storm_kills)
    if failed:
        print(f"{failed} invariants failed; the ledgers are in {folder}")
    elif options.folder is None:
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
