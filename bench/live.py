"""How soon a page shows what happened in another process: `python3 run.py bench live`.

A worker and a dashboard run with the default settings, each in a process of its own; this process watches pages as a
browser does. It prints how long after the fact a page shows a run that was enqueued, the end of a run, and the death
of a worker (SIGKILL of its sentinel), as median and longest. `--rounds N` and `--store redis` change what is measured.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from urllib.parse import quote

from mainspring import Mainspring
from tests.servers import Redis

MOST_SECONDS = 120.0
MODULE = """\
import time
from mainspring import Mainspring

app = Mainspring({url!r}, name="bench", secret_key="k" * 32)


@app.task(queue="exports")
def nap(seconds: float) -> None:
    time.sleep(seconds)
"""


class Watched:
    """A page that is watched: its regions as they are now, and when they last changed."""

    def __init__(self, port: int, view: str) -> None:
        self._regions: dict[str, str] = {}
        self._changed = threading.Condition()
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=MOST_SECONDS)
        self._connection.request("GET", f"/live?view={quote(view)}", headers={"host": f"localhost:{port}"})
        self._socket = self._connection.sock
        self._answer = self._connection.getresponse()
        threading.Thread(target=self._read, daemon=True).start()
        self.until(lambda text: bool(text))

    def _read(self) -> None:
        try:
            while line := self._answer.readline():
                if line.startswith(b"data: "):
                    said = json.loads(line[6:])
                    with self._changed:
                        self._regions |= {name: each["html"] for name, each in said["regions"].items()}
                        self._changed.notify_all()
        except (OSError, ValueError, AttributeError):
            pass  # it was closed

    def until(self, holds: Callable[[str], bool]) -> float:
        """Wait until the page is so; return the time."""
        with self._changed:
            if not self._changed.wait_for(lambda: holds("".join(self._regions.values())), MOST_SECONDS):
                raise TimeoutError("the page does not show it")
            return time.time()

    def close(self) -> None:
        """End it, so that the server renders it no more."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._connection.close()


@contextmanager
def process(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command of mainspring; kill it at the end."""
    command = [sys.executable, "-m", "mainspring", *words]
    started = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield started
    finally:
        started.send_signal(signal.SIGKILL)
        started.wait(30)


def measure(app: Mainspring, folder: Path, port: int, chance: random.Random) -> tuple[float, float, float]:
    """Return how many seconds it took until the page showed a new run, its end, and the death of a worker."""
    nap = app.as_task("bench_live_app:nap")
    overview = Watched(port, "/")
    with process(
        folder, "worker", "bench_live_app:app", "-Q", "exports", "--processes", "1", "--threads", "1"
    ) as worker:
        runs = Watched(port, "/runs")
        time.sleep(chance.uniform(2, 5))
        run = nap.enqueue(3.0)
        made = time.time()
        shown = runs.until(lambda text: run.id in text) - made
        runs.close()
        own = Watched(port, f"/runs/{run.id}")
        seen = own.until(lambda text: "Succeeded" in text)
        record = app.get(run.id).record
        assert record.finished_at is not None
        ended = seen - record.finished_at / 1e6
        own.close()
        held = [nap.enqueue(600.0) for _ in range(2)]
        overview.until(lambda text: "running" in text and "queue exports" not in text)
        while app.get(held[0].id).status != "running":
            time.sleep(0.05)
        time.sleep(chance.uniform(2, 5))
        worker.send_signal(signal.SIGKILL)
        killed = time.time()
        dead = overview.until(lambda text: 'data-key="queue exports"' in text) - killed
    overview.close()
    app.purge("exports")
    for each in held:
        app.cancel(each.id)
    return shown, ended, dead


def main() -> int:
    parser = argparse.ArgumentParser(prog="run.py bench live", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--store", choices=("sqlite", "redis"), default="sqlite")
    options = parser.parse_args()
    chance = random.Random(5)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = f"sqlite:///{folder}/jobs.db" if options.store == "sqlite" else stack.enter_context(Redis()).url
        (folder / "bench_live_app.py").write_text(MODULE.format(url=url))
        sys.path.insert(0, str(folder))
        app: Mainspring = __import__("bench_live_app").app
        served = stack.enter_context(process(folder, "dashboard", "--app", "bench_live_app:app", "--port", "18400"))
        assert served.stdout is not None
        port = next(int(found[1]) for line in served.stdout if (found := re.search(r"localhost:(\d+)", line)))
        rounds = []
        for _ in range(options.rounds):
            rounds.append(measure(app, folder, port, chance))
            print("enqueued {:.1f} s   ended {:.1f} s   killed {:.1f} s".format(*rounds[-1]), flush=True)
        for name, times in zip(("enqueued", "ended", "killed"), zip(*rounds, strict=True), strict=True):
            print(f"{name:9} median {median(times):.1f} s, longest {max(times):.1f} s")
        return 0 if median(each[2] for each in rounds) <= 6 else 1


if __name__ == "__main__":
    sys.exit(main())
