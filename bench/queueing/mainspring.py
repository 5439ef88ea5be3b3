"""mainspring's side of the comparison of queues: signed calls, results kept."""

from __future__ import annotations

import os

from bench.queueing import notes
from mainspring import Mainspring

app = Mainspring(os.environ["BENCH_URL"], secret_key="a key for the benchmark, and for nothing else")
noop = app.task(notes.noop)
stamp = app.task(notes.stamp)


def one(number: int | None = None) -> None:
    """Enqueue a call."""
    if number is None:
        noop.enqueue()
    else:
        stamp.enqueue(number)


def many(count: int) -> None:
    """Enqueue calls in bulk."""
    app.enqueue_many(noop.call() for _ in range(count))


def done(count: int) -> int:
    """Return how many of the calls are over."""
    return count - app.count(status=("pending", "running"))


if "BENCH_LAYERS" in os.environ:
    from bench.queueing.layers import start

    start(type(app.store))
