"""One history: nodes that schedule and work, jobs, enqueued runs, kills and freezes; then peace, and the reckoning."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC
from enum import StrEnum
from functools import partial
from random import Random
from typing import Any, NamedTuple

from msgspec.structs import replace

from mainspring.app.runs import Runs
from mainspring.core.instants import from_us
from mainspring.core.job import Job
from mainspring.core.lanes import THREADS_EXECUTOR
from mainspring.core.policy import Backoff, Policy
from mainspring.core.run import FINAL, ON, After, Call, Report, Result, Run, Status, describe
from mainspring.core.waiting.followups import with_hooks
from mainspring.core.waiting.gates import Limit
from mainspring.errors import StoreUnavailable
from mainspring.executors.base import BaseExecutor
from mainspring.executors.execution import MayStart, may_always_start
from mainspring.node.node import Node
from mainspring.node.store_link import StoreLink
from mainspring.triggers.interval import IntervalTrigger
from tests.simulation.store import Faults, Oracle, SimStore, Wire
from tests.simulation.world import SECOND, START, Process, SimClock, World

NODES, RUNS, JOBS = 3, 20, 4
TROUBLE = 150 * SECOND
"""How long things go wrong."""
PEACE = 1200 * SECOND
"""Everything has to end within this; up to a hundred overdue fires of one job come one after another, 40 s at most."""
LEASE = 15.0
REPEATED = 100
"""One seed in so many is run twice, to see that it gives the same history."""


class History(NamedTuple):
    """How one seed went."""

    faults: list[str]
    digest: str
    runs: int
    kills: int
    freezes: int
    repeats: int
    cancels: int
    behind: int
    """Starts of runs that came after others."""
    refused: int
    """Runs that were cancelled because of another."""
    gated: int
    """Starts of runs that have a gate."""
    parked: int
    """How often a run had to wait for a slot."""


def work() -> None: ...


class SimExecutor(BaseExecutor):
    """Executes runs as greenlets that take some time and now and then fail."""

    def __init__(self, process: Process, oracle: Oracle, slots: int = 4) -> None:
        self.slots, self._oracle = slots, oracle
        self._process = process
        self._waiting: list[tuple[Run, Callable[[Report], None], int]] = []
        self._running: dict[str, bool] = {}

    def submit(
        self, runs: Sequence[Run], report: Callable[[Report], None], may_start: MayStart = may_always_start
    ) -> None:
        self._waiting += [(run, report, self.now()) for run in runs]
        self._fill()

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self.slots:
            run, report, _ = self._waiting.pop(0)
            self._running[run.id] = False
            self._process.spawn(self._execute, run, report)

    def _execute(self, run: Run, report: Callable[[Report], None]) -> None:
        world = self._process.world
        started = self.now()
        world.trace("start", run.id, run.attempt)
        self._oracle.started(run)
        long = world.chance.random() < 0.15
        world.sleep(self._process, world.chance.randrange(10_000, (40 if long else 3) * SECOND))
        cancelled = self._running.pop(run.id)
        now = self.now()
        if cancelled:
            report(Report(run, Result.CANCELLED, started_at=started, finished_at=now))
        elif world.chance.random() < 0.15:
            error = ValueError("bad luck")
            report(Report(run, Result.RAISED, None, error, describe(error, now, run.attempt), started, now))
        else:
            report(Report(run, Result.RETURNED, run.id, None, None, started, now))
        self._fill()

    def withdraw(self, older_than: int | None = None) -> list[Run]:
        taken = [item for item in self._waiting if older_than is None or item[2] < older_than]
        self._waiting = [item for item in self._waiting if item not in taken]
        return [item[0] for item in taken]

    def cancel(self, run_id: str) -> bool:
        if run_id not in self._running:
            return False
        # Half of them as a thread that does not listen: it goes on, and its word comes late.
        self._running[run_id] |= self._process.world.chance.random() < 0.5
        return True


class Scenario:
    def __init__(self, seed: int, mutant: StrEnum | None = None) -> None:
        self.world = World(seed)
        self.store = SimStore(self.world, mutant)
        self.faults = Faults()
        self.kills = self.freezes = 0
        self.acknowledged: list[str] = []
        self._names = 0
        self._nodes: list[Process] = []
        self._outside = Process(self.world, "outside", 0)
        self._queue, self._alias = ("work", THREADS_EXECUTOR) if seed % 2 else (".default", "default")

    def run(self) -> History:
        world, chance = self.world, self.world.chance
        self._add_jobs()
        for _ in range(NODES):
            self._start_node()
        self._outside.spawn(self._enqueue)
        for _ in range(chance.randrange(3, 8)):
            world.call_at(chance.randrange(TROUBLE), self._outside, self._kill_one)
        for _ in range(chance.randrange(1, 5)):
            world.call_at(chance.randrange(TROUBLE), self._outside, self._freeze_one)
        for number in range(chance.randrange(5, 15)):
            person = Process(world, f"person{number}", 0)
            verb = self._retry_one if number % 3 == 0 else self._cancel_one
            world.call_at(chance.randrange(TROUBLE), person, partial(person.spawn, verb, person))
        world.run(START + TROUBLE)
        self._make_peace()
        world.run(START + TROUBLE + PEACE, self._is_quiet)
        self._reckon()
        repeats = sum(max(0, run.attempt - 1) for run in self.store.runs.values())
        faults = self.store.oracle.faults
        cancels = sum(run.status is Status.CANCELLED for run in self.store.runs.values())
        edges = self.store.oracle.edges
        return History(
            *(faults, world.history.hexdigest(), len(self.store.runs), self.kills, self.freezes, repeats, cancels),
            *(edges.started_behind, edges.refused),
            *(self.store.oracle.gates.gated, self.store.oracle.gates.parked),
        )

    # -- the actors --------------------------------------------------------------------------------------------

    def _add_jobs(self) -> None:
        chance = self.world.chance
        for number in range(JOBS):
            trigger = IntervalTrigger(seconds=chance.choice([1, 3, 7, 20]), start_date=from_us(START), timezone="UTC")
            job = Job(
                f"job{number}", Call(work, name="work"), trigger, at=START, coalesce=chance.random() < 0.5,
                executor="default" if self._queue == ".default" else "queue", queue="work",
                max_instances=chance.choice([1, 2, 100]), overlap=chance.choice(["skip", "queue", "cancel_other"]),
                misfire_grace_time=chance.choice([None, 5.0]),
                policy=Policy(retries=chance.choice([0, 2]), backoff=Backoff(first=0.5)),
            )  # fmt: skip
            self.store.add_job(job)

    def _start_node(self) -> None:
        world = self.world
        self._names += 1
        skew = world.chance.choice([0, world.chance.randrange(-60 * SECOND, 60 * SECOND)])
        process = Process(world, f"n{self._names}", skew)
        executor = SimExecutor(process, self.store.oracle)
        queues = None if self._queue == ".default" else {"work": None}
        node = Node(
            {self._alias: executor}, clock=SimClock(process), lease=LEASE, timezone=UTC, queues=queues,
            prepare=lambda run: replace(run, executor=self._alias),
        )  # fmt: skip
        node.id, node._stem = process.name, f"{process.name}-"
        wire = Wire(self.store, process, self.faults)
        link = node.links["default"] = StoreLink(node, "default", wire)  # type: ignore[arg-type]
        executor.now = node.elapsed
        self._nodes.append(process)
        link.worker.look_everywhere()
        process.spawn(link.work.run)
        process.spawn(link.monitor.run)
        process.spawn(link.care.run)
        process.spawn(self._hint, process, link)

    def _hint(self, process: Process, link: StoreLink) -> None:
        """Wake the loops now and then, as a store that tells of changes would."""
        while True:
            self.world.sleep(process, self.world.chance.randrange(50_000, 2 * SECOND))
            link.wake()

    def _enqueue(self) -> None:
        world, chance = self.world, self.world.chance
        wire = Wire(self.store, self._outside, self.faults)
        for number in range(RUNS):
            world.sleep(self._outside, chance.randrange(TROUBLE // RUNS * 2))
            run = Run(
                id=f"run{number}", call=Call(work, name="work"), queue=self._queue,
                executor="default" if self._queue == ".default" else None, created_at=world.now, run_at=world.now,
                policy=Policy(
                    retries=chance.choice([0, 3]), backoff=Backoff(first=0.5),
                    delivery=chance.choice(["at_least_once"] * 4 + ["at_most_once"]),
                    hook=chance.choice([None, None, work]),
                ),
                group=chance.choice([None, "flow"]), after=self._some_before(), **_some_gate(chance),
            )  # fmt: skip
            while True:
                try:
                    wire.add_runs(with_hooks([run]))
                    break
                except StoreUnavailable:  # also when the outcome is unknown: repeating is safe
                    world.sleep(self._outside, SECOND)
            self.acknowledged.append(run.id)

    def _some_before(self) -> tuple[After, ...]:
        chance, known = self.world.chance, self.acknowledged[-6:]
        chosen = chance.sample(known, min(len(known), chance.choice([0, 0, 1, 1, 2, 3])))
        return tuple(After(run_id, ON[chance.choice(["success", "success", "end", "failure"])]) for run_id in chosen)

    def _retry_one(self, person: Process) -> None:
        world, wire = self.world, Wire(self.store, person, self.faults)
        runs = Runs(lambda: wire, lambda: world.now, lambda: UTC)  # type: ignore[arg-type, return-value]
        runs.pause = lambda seconds: world.sleep(person, int(seconds * SECOND))
        bad = (Status.FAILED, Status.CANCELLED)
        over = [run.id for run in self.store.runs.values() if run.status in bad]
        if over:
            with suppress(StoreUnavailable, ValueError):
                runs.retry(world.chance.choice(over))

    def _cancel_one(self, person: Process) -> None:
        world, wire = self.world, Wire(self.store, person, self.faults)
        runs = Runs(lambda: wire, lambda: world.now, lambda: UTC)  # type: ignore[arg-type, return-value]
        unfinished = [run.id for run in self.store.runs.values() if run.status not in FINAL]
        if unfinished:
            with suppress(StoreUnavailable):
                runs.cancel(world.chance.choice(unfinished))

    def _kill_one(self) -> None:
        living = [process for process in self._nodes if process.alive]
        if living:
            self.world.chance.choice(living).kill()
        self._replace_dead()

    def _replace_dead(self) -> None:
        for process in [process for process in self._nodes if not process.alive]:
            self._nodes.remove(process)
            self.kills += 1
            self.world.call_at(self.world.chance.randrange(1, 20 * SECOND), self._outside, self._start_node)

    def _freeze_one(self) -> None:
        living = [process for process in self._nodes if process.alive]
        if living:
            self.freezes += 1
            process = self.world.chance.choice(living)
            process.freeze(self.world.chance.randrange(int(0.5 * LEASE * SECOND), int(4 * LEASE * SECOND)))

    # -- the end -----------------------------------------------------------------------------------------------

    def _make_peace(self) -> None:
        self.faults.stop()
        self.store.jobs.clear()
        self._replace_dead()
        if not self._nodes:
            self._start_node()

    def _is_quiet(self) -> bool:
        enqueued = len(self.acknowledged) == RUNS
        return enqueued and not self.store.popped and all(run.status in FINAL for run in self.store.runs.values())

    def _reckon(self) -> None:
        oracle, runs = self.store.oracle, self.store.runs
        for run_id in self.acknowledged:
            if run_id not in runs:
                oracle.fault(f"{run_id} was acknowledged and is lost")
        for run in runs.values():
            if run.status not in FINAL:
                oracle.fault(f"{run.id} is still {run.status}")
            if run.status is not Status.MISSED and run.id not in oracle.ended and run.status in FINAL:
                oracle.fault(f"{run.id} is {run.status} without a word of anybody")


def _some_gate(chance: Random) -> dict[str, Any]:
    limits = {"one": Limit(1), "two": Limit(2), "often": Limit(1, SECOND // 2, 2)}
    name = chance.choice([None, "one", *limits])
    return {} if name is None else {"gate": name, "gate_spec": limits[name].to_text()}


def simulate(seed: int, mutant: StrEnum | None = None) -> History:
    """Let one seed's history happen."""
    return Scenario(seed, mutant).run()


def simulate_in_pool(seed: int) -> tuple[int, History, bool]:
    """Let one seed's history happen in a process of a pool; tell also whether it is the same again."""
    logging.disable(logging.CRITICAL)
    history = simulate(seed)
    return seed, history, seed % REPEATED != 0 or simulate(seed).digest == history.digest
