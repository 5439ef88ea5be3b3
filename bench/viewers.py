"""How much of its rate a worker keeps while ten people watch the dashboard.

`python3 run.py bench viewers` lets one worker process execute calls that do nothing, on a SQLite file, while a
dashboard in a process of its own serves viewers of four pages, and again without. It repeats that in turns, so that a
busy machine harms both alike, and prints the rates, and the CPU time of the worker, which tells more if the cores are
shared: the dashboard's process needs one, too. `--runs N` and `--rounds N` change how long it takes, `--filled N` puts
N ended runs into the store before, and `--store redis` takes a Redis server of its own.

Beside the rate it prints the share of a core that the dashboard's process used. With few cores that share alone slows
a worker down. `--control` tells this cost from the cost of what the dashboard does with the store: it measures a third
time in each round, beside a process that keeps a core busy for exactly that share and reads nothing.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple
from urllib.parse import quote

from bench.dashboard import add
from mainspring import Mainspring
from tests.servers import Redis

VIEWERS = 10
VIEWS = ("/", "/runs", "/queues", "/nodes")
LOOK_SECONDS = 0.1
"""Look this often how far the worker has come: each look counts the runs that wait."""
BURN = """\
import sys, time

share = float(sys.argv[1])
while True:
    until = time.process_time() + 0.1 * share
    while time.process_time() < until:
        pass
    time.sleep(0.1 * (1 - share))
"""
MODULE = """\
from mainspring import Mainspring

app = Mainspring({url!r}, name="bench", secret_key="k" * 32, store_options={{"keep_runs": 10_000_000}})


@app.task
def nothing() -> None: ...
"""


def watch(port: int, view: str, done: threading.Event) -> None:
    """Read the updates of one page until the end."""
    while not done.is_set():
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", f"/live?view={quote(view)}", headers={"host": f"localhost:{port}"})
            answer = connection.getresponse()
            while not done.is_set() and answer.readline():
                pass
        except OSError:
            time.sleep(0.2)


def app_in(folder: Path) -> Mainspring:
    """Import the app as its worker does."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    app: Mainspring = __import__("bench_viewers_app").app
    return app


class Speed(NamedTuple):
    """What a worker did: runs per second, and how many microseconds of CPU time each run took it.

    `beside` is the share of a core that another process used meanwhile.
    """

    rate: float
    cpu: float
    beside: float = 0.0


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU time that a process and its children have used."""
    used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(map(int, used)) / os.sysconf("SC_CLK_TCK") + sum(cpu_of(int(child)) for child in children)


def speed(folder: Path, runs: int, other: int | None = None) -> Speed:
    """Return how fast a new worker executes runs, and what the process `other` used meanwhile."""
    app = app_in(folder)
    task = app.as_task("bench_viewers_app:nothing")
    before = app.counters()["succeeded"]
    app.enqueue_many(task.call() for _ in range(runs))
    command = [sys.executable, "-m", "mainspring", "worker", "bench_viewers_app:app", "--processes", "1"]
    worker = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while app.counters()["succeeded"] < before + runs // 10:  # it has started by then
            time.sleep(LOOK_SECONDS)
        first, began, spent = app.counters()["succeeded"], time.monotonic(), cpu_of(worker.pid)
        others = 0.0 if other is None else cpu_of(other)
        while (last := app.counters()["succeeded"]) < before + runs:
            time.sleep(LOOK_SECONDS)
        number, took = last - first, time.monotonic() - began
        beside = 0.0 if other is None else (cpu_of(other) - others) / took
        return Speed(number / took, (cpu_of(worker.pid) - spent) / number * 1e6, beside)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(30)


def watched_speed(folder: Path, runs: int) -> Speed:
    """Return the same while ten viewers watch."""
    command = [sys.executable, "-m", "mainspring", "dashboard", "--app", "bench_viewers_app:app", "--port", "18300"]
    served = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    done = threading.Event()
    assert served.stdout is not None
    try:
        port = next(int(found[1]) for line in served.stdout if (found := re.search(r"localhost:(\d+)", line)))
        for number in range(VIEWERS):
            view = VIEWS[number % len(VIEWS)]
            threading.Thread(target=watch, args=(port, view, done), daemon=True).start()
        time.sleep(2)
        return speed(folder, runs, served.pid)
    finally:
        done.set()
        served.send_signal(signal.SIGINT)
        served.wait(30)


def control_speed(folder: Path, runs: int, share: float) -> Speed:
    """Return the same while a process uses this share of a core and reads nothing."""
    busy = subprocess.Popen([sys.executable, "-c", BURN, str(share)])
    try:
        return speed(folder, runs, busy.pid)
    finally:
        busy.kill()
        busy.wait(30)


def main() -> int:
    parser = argparse.ArgumentParser(prog="run.py bench viewers", description=__doc__)
    parser.add_argument("--runs", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--filled", type=int, default=0, help="ended runs in the store before it begins")
    parser.add_argument("--control", action="store_true", help="also beside a process that only keeps a core as busy")
    parser.add_argument("--store", choices=("sqlite", "redis"), default="sqlite")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = f"sqlite:///{folder}/jobs.db" if options.store == "sqlite" else stack.enter_context(Redis()).url
        (folder / "bench_viewers_app.py").write_text(MODULE.format(url=url))
        if options.filled:
            add(app_in(folder), options.filled)
        return compare(folder, options.runs, options.rounds, options.control)


def compare(folder: Path, runs: int, rounds: int, control: bool) -> int:
    """Measure in turns; return 0 if the worker keeps its rate."""
    found: dict[str, list[Speed]] = {name: [] for name in ("alone", "watched", "control")[: 3 if control else 2]}
    for _ in range(rounds):
        found["alone"].append(speed(folder, runs))
        found["watched"].append(watched_speed(folder, runs))
        if control:
            found["control"].append(control_speed(folder, runs, min(1.0, found["watched"][-1].beside)))
        for name, (*_, last) in found.items():
            print(
                f"{name:8} {last.rate:8,.0f}/s {last.cpu:8.1f} us CPU a run {last.beside:8.1%} of a core beside it   "
                f"load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    middle = {name: Speed(*map(median, zip(*each, strict=True))) for name, each in found.items()}
    alone = middle.pop("alone")
    for name, each in middle.items():
        kept, cost = each.rate / alone.rate, each.cpu / alone.cpu
        print(
            f"{name}: kept {kept:.1%} of the rate, for {cost:.1%} of the CPU time of the worker, beside "
            f"{each.beside:.1%} of a core (median of {rounds})"
        )
    return 0 if middle["watched"].rate / alone.rate >= 0.98 else 1


if __name__ == "__main__":
    sys.exit(main())
