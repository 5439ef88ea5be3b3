"""Where the time goes between an enqueue and the start of its function, on an idle worker.

`python3 run.py bench timeline [--stores sqlite redis postgresql] [--calls 200]` starts a worker in a process of its
own, enqueues calls 20 ms apart, and prints for each stage the median, and p10: what the quickest tenth of the calls
needs at most, which hardly depends on how busy the machine is. Both processes read the same monotonic clock. The stages
follow each other without a gap, but their medians need not add up to the median of the whole.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import quantiles
from typing import Any

from mainspring import Mainspring, current_run
from mainspring.core.run import Run
from mainspring.jobstores.base import JobStore
from mainspring.node.claiming import WorkerTick
from mainspring.node.store_link import StoreLink
from tests.servers import PostgreSQL, Redis, Server

SERVERS: dict[str, type[Server]] = {"postgresql": PostgreSQL, "redis": Redis}
PAUSE_SECONDS = 0.02
WARM_UP_CALLS = 20
STAGES = {
    "written": "producer: make, pack and sign",
    "heard": "store: write; wake-up of the worker",
    "awake": "worker: from listener to claims",
    "asked": "worker: what to claim",
    "claimed": "store: claim",
    "started": "worker: hand over to a thread",
}
"""The moments at which a stage ends, in order, and the stage that ends there."""

app = Mainspring(os.environ.get("BENCH_URL"), secret_key="a key for the benchmark, and for nothing else")
moments: dict[str, int] = {}
"""When each moment was last reached in this process, in nanoseconds of the monotonic clock."""
claims: dict[str, dict[str, int]] = {}
"""The moments before each run was claimed, by its id."""
calls: list[dict[str, int]] = []


@app.task
def work(number: int) -> None:
    """Note when the function of the call starts, and what came before it."""
    started = time.monotonic_ns()
    calls.append({**claims[current_run().id], "number": number, "started": started})


def note(owner: type, method: str, *, before: str = "", after: str = "") -> None:
    """Note the moments before and after each call of a method."""
    original: Callable[..., Any] = getattr(owner, method)

    @functools.wraps(original)
    def noted(*args: Any, **kwargs: Any) -> Any:
        if before:
            moments[before] = time.monotonic_ns()
        value = original(*args, **kwargs)
        if after:
            moments[after] = time.monotonic_ns()
        return value

    setattr(owner, method, noted)


def serve() -> None:
    """Execute calls until the standard input ends; then print what was noted."""
    store: type[JobStore] = type(app.store)
    note(WorkerTick, "look_everywhere", before="heard")
    note(WorkerTick, "claims", before="awake")
    note(store, "claim", before="asked", after="claimed")
    begin = StoreLink.begin

    def noted(link: StoreLink, runs: Sequence[Run]) -> None:
        claims.update((run.id, dict(moments)) for run in runs)
        begin(link, runs)

    StoreLink.begin = noted  # type: ignore[method-assign,assignment]
    app.start(work=True)
    print("ready", flush=True)
    sys.stdin.read()
    app.stop()
    print(json.dumps(calls), flush=True)


def measure(url: str, count: int) -> list[dict[str, int]]:
    """Enqueue calls for a worker in another process; return the moments of each."""
    environment = {**os.environ, "BENCH_URL": url}
    worker = subprocess.Popen([sys.executable, __file__, "--serve"], env=environment, stdin=-1, stdout=-1, text=True)
    assert worker.stdout is not None
    worker.stdout.readline()
    here = Mainspring(url, secret_key="a key for the benchmark, and for nothing else")
    task = here.task(work.func)
    note(type(here.store), "add_runs", before="written")
    sent: list[dict[str, int]] = []
    for number in range(count + WARM_UP_CALLS):
        time.sleep(PAUSE_SECONDS)
        began = time.monotonic_ns()
        task.enqueue(number)
        sent.append({"began": began, "written": moments["written"], "returned": time.monotonic_ns()})
    time.sleep(1.0)
    here.close()
    output, _ = worker.communicate("")
    return [{**sent[call["number"]], **call} for call in json.loads(output) if call["number"] >= WARM_UP_CALLS]


def show(name: str, found: list[dict[str, int]]) -> None:
    """Print the stages of the calls on one store."""
    print(f"\n{name}: {len(found)} calls{'p10':>27}{'p50':>9}{'p99':>9}  ms")
    before = "began"
    for moment, stage in STAGES.items():
        show_stage(stage, found, before, moment)
        before = moment
    show_stage("enqueue to start", found, "began", "started")
    show_stage("(until the enqueue returns)", found, "began", "returned")


def show_stage(name: str, found: list[dict[str, int]], before: str, after: str) -> None:
    """Print how long the calls took from one moment to another."""
    marks = quantiles(((call[after] - call[before]) / 1e6 for call in found), n=100)
    print(f"  {name:<36}" + "".join(f"{marks[percent - 1]:>9.2f}" for percent in (10, 50, 99)))


def main() -> None:
    """Measure the stores that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", nargs="+", default=["sqlite", "redis", "postgresql"], metavar="STORE")
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    with ExitStack() as stack:
        for name in options.stores:
            if name in SERVERS:
                url = stack.enter_context(SERVERS[name]()).url
            else:
                url = f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory())}/jobs.db"
            show(name, measure(url, options.calls))


if __name__ == "__main__":
    main()
