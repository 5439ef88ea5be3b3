"""Is a flow linear? A chain and a gathering of some sizes, at the store: CPU for each step, and how it grows.

`python3 run.py bench flows [--sizes 1000 10000] [--stores sqlite postgresql redis]`. One process adds, claims and
settles; the CPU of a server is counted, too. Times depend on the machine, ratios hardly do.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from mainspring.core.run import ON, After, Run, Status
from mainspring.core.waiting.flows import with_joins
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.jobstores.opening import open_store
from mainspring.testing.conformance.helpers import CALL, claim, succeed
from tests.servers import PostgreSQL, Redis, Server

BATCH = 1000
SERVERS: dict[str, type[Server]] = {"postgresql": PostgreSQL, "redis": Redis}


def server_seconds(pid: int | None) -> float:
    """Return the CPU time of a server process and of those that it has started."""
    if pid is None:
        return 0.0
    ticks = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(entry.name) == pid or int(fields[1]) == pid:
                ticks += sum(map(int, fields[11:15] if int(entry.name) == pid else fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def chain(size: int, name: str, now: int) -> list[Run]:
    """Make runs of which each comes after the one before."""
    ids = [f"{name}~{number}" for number in range(size)]
    return [
        Run(
            id=each,
            call=CALL,
            created_at=now,
            run_at=now,
            after=(After(ids[number - 1], ON["success"]),) if number else (),
        )
        for number, each in enumerate(ids)
    ]


def gathering(size: int, name: str, now: int) -> list[Run]:
    """Make runs and one that comes after all of them, with joins in between."""
    items = [Run(id=f"{name}~{number}", call=CALL, created_at=now, run_at=now) for number in range(size)]
    last = Run(
        id=f"{name}~last",
        call=CALL,
        created_at=now,
        run_at=now,
        after=tuple(After(run.id, ON["success"]) for run in items),
    )
    return with_joins(name, [*items, last])


def measure(
    store: JobStore, make: Callable[[int, str, int], list[Run]], size: int, pid: int | None
) -> tuple[float, float]:
    """Store a flow and run it; return the microseconds of CPU for each run: to add it, and to claim and settle it."""
    runs = make(size, f"{make.__name__}{size}", store.beat())
    spent = [time.process_time() + server_seconds(pid)]
    for start in range(0, len(runs), BATCH):
        store.add_runs(runs[start : start + BATCH])
    spent.append(time.process_time() + server_seconds(pid))
    queues = {run.queue for run in runs}
    left = len(runs)
    while left:
        some = claim(store, *queues)
        left -= sum(store.settle([succeed(store, run) for run in some]))
    spent.append(time.process_time() + server_seconds(pid))
    assert not store.stats(RunQuery(status=(Status.BLOCKED,))).matching
    return (spent[1] - spent[0]) / len(runs) * 1e6, (spent[2] - spent[1]) / len(runs) * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="run.py bench flows", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs=2, default=(1000, 10_000))
    parser.add_argument("--stores", nargs="+", default=["sqlite", *SERVERS])
    options = parser.parse_args()
    small, large = options.sizes
    print(f"CPU us per run: add, claim + settle, at {small:,} -> {large:,} (ratio)")
    for name in options.stores:
        with ExitStack() as stack:
            server = SERVERS[name]().start() if name in SERVERS else None
            if server is not None:
                stack.callback(server.stop)
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            store = open_store(server.url if server else f"sqlite:///{folder}/flows.db")
            store.start(None, "default")
            stack.callback(store.shutdown)
            pid = server._process.pid if server is not None and server._process is not None else None
            for make in (chain, gathering):
                first, second = (measure(store, make, size, pid) for size in (small, large))
                words = [f"{a:.0f} -> {b:.0f} ({b / a:.2f})" for a, b in zip(first, second, strict=True)]
                print(f"{name:<11} {make.__name__:<10} add {words[0]}, run {words[1]}", flush=True)


if __name__ == "__main__":
    main()
