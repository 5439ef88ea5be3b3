"""The app under torment: tasks of every kind, each of which writes down what it does."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mainspring import Mainspring
from mainspring.clock import SystemClock
from mainspring.core.run import FINAL, Condition
from mainspring.executors.current_run import current_run
from mainspring.jobstores.base import ClaimedRuns, NodeInfo
from tests.chaos.ledger import (
    ACCEPTED,
    BACK,
    BEGIN,
    CLAIMED,
    EFFECT,
    ENQUEUED,
    FAULT,
    LOST,
    RECOVERED,
    START,
    Ledger,
    time_ns,
)

LEASE = float(os.environ.get("CHAOS_LEASE", "5"))
SLOW = 0.15
LONG = LEASE * 1.5

HOURS = 26.0
STEADY = 20.0
"""Seconds after which a wrong clock jumps."""


def go_wrong(seed: str) -> None:
    """Have this process's wall clock off by hours, and jump; but SQLite's clock is the host's, the same for all."""

    def off() -> int:
        chance = random.Random(f"{seed}:{os.getpid()}:{time.monotonic() // STEADY}")
        return int(chance.uniform(-HOURS, HOURS) * 3600e9)

    if os.environ["MAINSPRING_URL"].startswith("sqlite"):
        SystemClock.now = lambda self: (time_ns() + off()) // 1000  # type: ignore[method-assign]
    else:
        time.time_ns = lambda: time_ns() + off()
        time.time = lambda: (time_ns() + off()) / 1e9


if (seed := os.environ.get("CHAOS_CLOCK")) and __name__ != "__main__":
    go_wrong(seed)

ledger = Ledger(Path(os.environ.get("CHAOS_FOLDER", ".")))
app = Mainspring(lease=LEASE, timezone="UTC", store_options={"keep_runs": 10_000_000})


def watch(app: Mainspring) -> None:
    """Write down what the store is asked for and what it answers."""
    store: Any = app.store
    claim, settle, beat = store.claim, store.settle, store.beat
    began: set[int] = set()

    def watched_beat(node: NodeInfo | None = None, ttl: float = 0.0) -> int:
        now: int = beat(node, ttl)
        if node is not None and os.getpid() not in began:  # a process that cannot reach the store is no node yet
            began.add(os.getpid())
            ledger.note(BEGIN, "node")
        return now

    def watched_claim(*args: Any, **options: Any) -> ClaimedRuns:
        claimed: ClaimedRuns = claim(*args, **options)
        ledger.write(CLAIMED, [(run.id, run.attempt, run.token, 0) for run in claimed.runs])
        return claimed

    def watched_settle(outcomes: Sequence[Any]) -> list[bool]:
        answers: list[bool] = settle(outcomes)
        for outcome, accepted in zip(outcomes, answers, strict=True):
            run = outcome.run
            if accepted or outcome.condition is Condition.HELD:  # two janitors may well find the same run
                ledger.write(_kind(outcome, accepted), [(run.id, run.attempt, run.token, str(run.status))])
        return answers

    store.claim, store.settle, store.beat = watched_claim, watched_settle, watched_beat


def _kind(outcome: Any, accepted: bool) -> str:
    if not accepted:
        return LOST
    if outcome.run.status in FINAL:
        return ACCEPTED
    return RECOVERED if outcome.condition is Condition.EXPIRED else BACK


watch(app)


def start(not_before: int = 0) -> None:
    run = current_run()
    due = run.record.fire_time or not_before
    ledger.write(START, [(run.id, run.attempt, run.record.token, due)])


def effect() -> None:
    run = current_run()
    ledger.write(EFFECT, [(run.id, run.attempt, run.record.token, 0)])


@app.task
def ok(number: int) -> int:
    start()
    effect()
    return number


@app.task(retries=4, backoff=(0.05,))
def flaky(number: int) -> int:
    """Fail twice, then succeed."""
    start()
    if current_run().record.failures < 2:
        raise ValueError("bad luck")
    effect()
    return number


@app.task
def failing(number: int) -> None:
    start()
    effect()
    raise ValueError("always")


@app.task
def slow(number: int) -> int:
    start()
    time.sleep(SLOW)
    effect()
    return number


@app.task
def long(number: int) -> int:
    """Take longer than the lease, which has to be renewed meanwhile."""
    start()
    time.sleep(LONG)
    effect()
    return number


@app.task
async def nap(number: int) -> int:
    start()
    await asyncio.sleep(SLOW)
    effect()
    return number


@app.task
def crash(number: int) -> int:
    """Take the process down, the first time."""
    start()
    if current_run().attempt == 1:
        ledger.note(FAULT, "crash")
        os._exit(7)
    effect()
    return number


@app.task
def parent(number: int) -> int:
    """Have another run made, under a name of its own, so that doing it twice makes no second one."""
    start()
    effect()
    name = f"{current_run().id}.child"
    soon = time_ns() // 1000 + 200_000  # by the clock of the store, which is this machine's
    later.options(id=name, delay=0.3).enqueue(soon)
    ledger.note(ENQUEUED, name)
    return number


@app.task(delivery="at_most_once")
def once(number: int) -> int:
    start()
    time.sleep(SLOW)
    effect()
    return number


@app.task
def later(not_before: int) -> int:
    """Start not before its time."""
    start(not_before)
    effect()
    return not_before


@app.task
def forbidden(number: int) -> None:
    """Be altered in the store, and so never be executed."""
    start()
    effect()


@app.task
def tick() -> None:
    """Be fired by a job."""
    start()
    effect()


def main() -> None:
    """Take part as one plain node: no sentinel, everything in this process."""
    done = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: done.set())
    app.start(work=True, threads=4)
    while not done.wait(1):
        pass
    app.close()


if __name__ == "__main__":
    from tests.chaos import jobs  # under its own name: `python -m` made this module `__main__`

    jobs.main()
