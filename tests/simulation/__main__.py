"""Simulate many seeds: `python3 run.py simulate [--seeds N] [--first N] [--processes N]`."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable
from enum import StrEnum

from tests.simulation import scale
from tests.simulation.edges import EdgeMutant
from tests.simulation.gates import GateMutant
from tests.simulation.scenario import History, simulate, simulate_in_pool
from tests.simulation.store import Mutant


def catch(mutant: StrEnum, most: int) -> int | None:
    """Return the first seed that catches a mutant."""
    logging.disable(logging.CRITICAL)
    return next((seed for seed in range(most) if simulate(seed, mutant).faults), None)


def main() -> int:
    """Simulate, print what there was and what went wrong, return the exit code."""
    if "--scale" in sys.argv[1:]:
        return scale.main([argument for argument in sys.argv[1:] if argument != "--scale"])
    parser = argparse.ArgumentParser(prog="run.py simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    started = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=25) as pool:
        seeds = range(options.first, options.first + options.seeds)
        failed = report(pool.imap_unordered(simulate_in_pool, seeds, chunksize=20), options.seeds)
        for mutant in (*Mutant, *EdgeMutant, *GateMutant):
            seed = catch(mutant, 2000)
            print(f"mutant {mutant.value!r}: {'NOT CAUGHT' if seed is None else f'caught by seed {seed}'}")
            failed += seed is None
    print(f"{time.monotonic() - started:.0f} s")
    return 1 if failed else 0


def report(histories: Iterable[tuple[int, History, bool]], number: int) -> int:
    """Sum histories up; return how many failed."""
    total = dict.fromkeys(("runs", "kills", "freezes", "repeats", "cancels", "behind", "refused", "gated", "parked"), 0)
    failed = 0
    for done, (seed, history, same) in enumerate(histories, 1):
        for name in total:
            total[name] += getattr(history, name)
        if history.faults or not same:
            failed += 1
            why = history.faults[:3] if history.faults else ["two runs of this seed differ"]
            print(f"\nseed {seed}: {'; '.join(why)}")
        if done % (50 if sys.stderr.isatty() else 1000) == 0:
            end = "" if sys.stderr.isatty() else "\n"
            print(f"\r{done:,}/{number:,} seeds, {failed} failed", end=end, file=sys.stderr, flush=True)
    words = ", ".join(f"{value:,} {name}" for name, value in total.items())
    print(f"{number:,} seeds: {words}; {failed} failed (95 % bound {3 / max(1, number):.1e} per seed if none)")
    return failed


if __name__ == "__main__":
    sys.exit(main())
