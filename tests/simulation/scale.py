"""What a fleet asks of its store: `python3 run.py simulate --scale [--nodes N] [--jobs N] [--seconds N]`.

The real ticks of many nodes share one memory store in virtual time; every call of the store is counted.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any

from mainspring.core.instants import SECOND, from_us
from mainspring.core.job import Job
from mainspring.core.run import Call, Report, Result, Run
from mainspring.executors.base import BaseExecutor
from mainspring.executors.execution import MayStart, may_always_start
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.node.node import Node
from mainspring.node.store_link import StoreLink
from mainspring.testing.clock import VirtualClock
from mainspring.triggers.interval import IntervalTrigger


def work() -> None: ...


class Counted:
    """A store whose calls are counted."""

    def __init__(self, store: MemoryJobStore) -> None:
        self._store, self.calls = store, Counter[str]()
        self.volatile, self.keeps_objects = False, True

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(self._store, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            return method(*args, **kwargs)

        return call


class Instant(BaseExecutor):
    """Executes in no time."""

    slots = 1000

    def submit(
        self, runs: Sequence[Run], report: Callable[[Report], None], may_start: MayStart = may_always_start
    ) -> None:
        now = self.now()
        for run in runs:
            report(Report(run, Result.RETURNED, None, None, None, now, now))


class Fleet:
    """Nodes whose ticks are called when they ask to be."""

    def __init__(self, nodes: int, jobs: int, every: int, seed: int = 1) -> None:
        self.clock = VirtualClock(seed=seed)
        self.store = MemoryJobStore(self.clock, keep_runs=1000)
        self.counted = Counted(self.store)
        self._add_jobs(jobs, every, random.Random(seed))
        self.links = [self._link(number) for number in range(nodes)]
        self._due: list[tuple[int, int, int, StoreLink, Callable[[], float]]] = []
        self._turn = 0

    def _add_jobs(self, jobs: int, every: int, chance: random.Random) -> None:
        start, call = self.clock.now(), Call(work, name="work")
        batch = []
        for number in range(jobs):
            at = start + chance.randrange(every * SECOND)
            trigger = IntervalTrigger(seconds=every, start_date=from_us(at), timezone="UTC")
            batch.append(Job(f"job{number}", call, trigger, at=at))
        self.store.add_jobs(batch)

    def _link(self, number: int) -> StoreLink:
        executor = Instant()
        node = Node({"default": executor}, clock=self.clock, timezone=UTC)
        node.id = f"n{number}"
        link = node.links["default"] = StoreLink(node, "default", self.counted)  # type: ignore[arg-type]
        executor.now = node.elapsed
        return link

    def run(self, seconds: float) -> Counter[str]:
        """Let time pass; return the calls."""
        end = self.clock.now() + int(seconds * SECOND)
        if not self._due:
            for link in self.links:
                for tick in (link.scheduler, link.heartbeat, link.janitor):
                    self._later(link, tick, self.clock.random() * 5)
        self.counted.calls.clear()
        while self._due[0][0] <= end:
            at, _, _, link, next_tick = heapq.heappop(self._due)
            self.clock.advance(max(0, at - self.clock.now()) / SECOND)
            delay = next_tick()
            while link.worker.outbox:
                link.worker()
            self._later(link, next_tick, delay)
        return self.counted.calls

    def _later(self, link: StoreLink, tick: Callable[[], float], delay: float) -> None:
        self._turn += 1
        heapq.heappush(self._due, (self.clock.now() + int(delay * SECOND) + 1, self._turn, id(link), link, tick))


def main(arguments: Sequence[str]) -> int:
    """Print the calls per second of a fleet."""
    parser = argparse.ArgumentParser(prog="run.py simulate --scale", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--every", type=int, default=3600, help="seconds between two fires of a job")
    parser.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args(arguments)
    fleet = Fleet(options.nodes, options.jobs, options.every)
    fleet.run(20)  # until it has found its rhythm
    before = fleet.store.stats().totals["succeeded"]
    calls = fleet.run(options.seconds)
    fires = fleet.store.stats().totals["succeeded"] - before
    print(f"{options.nodes:,} nodes, {options.jobs:,} jobs, each every {options.every:,} s; {options.seconds:g} s")
    print(f"{fires / options.seconds:,.0f} fires per second")
    for name, number in calls.most_common():
        print(f"{name:>12}  {number / options.seconds:10,.1f} calls per second")
    print(f"{'together':>12}  {calls.total() / options.seconds:10,.1f}")
    return 0
