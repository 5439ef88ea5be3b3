"""How much of its rate a worker keeps while ten people watch the dashboard.

`python3 run.py bench viewers` lets one worker process execute calls that do nothing, on a SQLite file, while a
dashboard in a process of its own serves viewers of four pages, and again without. It repeats that in turns, so that a
busy machine harms both alike, and prints the rates, and the CPU time of the worker, which tells more if the cores are
shared: the dashboard's process needs one, too. `--runs N` and `--rounds N` change how long it takes, `--filled N` puts
N ended runs into the store before, and `--store redis` takes a Redis server of its own.
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
    """What a worker did: runs per second, and how many microseconds of CPU time each run took it."""

    rate: float
    cpu: float


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU time that a process and its children have used."""
    used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(map(int, used)) / os.sysconf("SC_CLK_TCK") + sum(cpu_of(int(child)) for child in children)


def speed(folder: Path, runs: int) -> Speed:
    """Return how fast a new worker executes runs."""
    app = app_in(folder)
    task = app.as_task("bench_viewers_app:nothing")
    before = app.counters()["succeeded"]
    app.enqueue_many(task.call() for _ in range(runs))
    command = [sys.executable, "-m", "mainspring", "worker", "bench_viewers_app:app", "--processes", "1"]
    worker = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while app.counters()["succeeded"] < before + runs // 10:  # it has started by then
            time.sleep(0.01)
        first, began, spent = app.counters()["succeeded"], time.monotonic(), cpu_of(worker.pid)
        while (last := app.counters()["succeeded"]) < before + runs:
            time.sleep(0.02)
        number = last - first
        return Speed(number / (time.monotonic() - began), (cpu_of(worker.pid) - spent) / number * 1e6)
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
        return speed(folder, runs)
    finally:
        done.set()
        served.send_signal(signal.SIGINT)
        served.wait(30)


def main() -> int:
    parser = argparse.ArgumentParser(prog="run.py bench viewers", description=__doc__)
    parser.add_argument("--runs", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--filled", type=int, default=0, help="ended runs in the store before it begins")
    parser.add_argument("--store", choices=("sqlite", "redis"), default="sqlite")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = f"sqlite:///{folder}/jobs.db" if options.store == "sqlite" else stack.enter_context(Redis()).url
        (folder / "bench_viewers_app.py").write_text(MODULE.format(url=url))
        if options.filled:
            add(app_in(folder), options.filled)
        return compare(folder, options.runs, options.rounds)


def compare(folder: Path, runs: int, rounds: int) -> int:
    """Measure in turns; return 0 if the worker keeps its rate."""
    alone, watched = [], []
    for _ in range(rounds):
        alone.append(speed(folder, runs))
        watched.append(watched_speed(folder, runs))
        for name, found in (("alone", alone[-1]), ("watched", watched[-1])):
            print(
                f"{name:8} {found.rate:8,.0f}/s {found.cpu:8.1f} us CPU a run   load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    share = median(each.rate for each in watched) / median(each.rate for each in alone)
    cost = median(each.cpu for each in watched) / median(each.cpu for each in alone)
    print(f"kept {share:.1%} of the rate, for {cost:.1%} of the CPU time of the worker (median of {rounds})")
    return 0 if share >= 0.98 else 1


if __name__ == "__main__":
    sys.exit(main())
