"""A worker process of its own that tests start and kill: `python worker.py URL QUEUE...`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from mainspring import Mainspring
from mainspring.executors.current_run import current_run

LEASE_SECONDS = 3.0
KEY = "k" * 32


def make_app(url: str) -> Mainspring:
    """Make the app that the test and the worker share."""
    app = Mainspring(url, name="shop", secret_key=KEY, timezone="UTC", lease=LEASE_SECONDS, queues=["exports", "long"])

    @app.task(name="shop:export", queue="exports")
    def export(seconds: float = 0.0) -> str:
        time.sleep(seconds)
        return "exported"

    @app.task(name="shop:long", queue="long", retries=1)
    def long() -> str:
        if current_run().record.attempt == 1:
            print("started", flush=True)
            time.sleep(600)
        return "done"

    return app


@contextmanager
def worker(url: str, *queues: str) -> Iterator[subprocess.Popen[str]]:
    """Start a worker process; kill it at the end unless the test has."""
    command = [sys.executable, "-m", __name__, url, *queues]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


if __name__ == "__main__":
    make_app(sys.argv[1]).run(queues=sys.argv[2:])
