"""Who takes part in a storm: workers, enqueuers, a person who cancels, retries and sets limits, and an observer.

Each is a process of its own that may be killed at any moment. They use the store's contract, and above it the code that
nodes and apps use: the settler, and the verbs `cancel` and `retry`.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC
from pathlib import Path
from typing import Final

from mainspring.app.runs import Runs
from mainspring.core.instants import SECOND
from mainspring.core.policy import Policy
from mainspring.core.run import (
    FINAL,
    ON,
    UNFINISHED,
    WAITING,
    After,
    Call,
    Report,
    Result,
    Run,
    Status,
    bit_of,
    describe,
)
from mainspring.core.transitions import change, conclude, recover
from mainspring.core.waiting.gates import QUEUE_GATE, Limit
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.node.settling import Settler

LEASE: Final = 1.0
LIMITS: Final = {
    "key:a": Limit(1),
    "key:b": Limit(1),
    "key:c": Limit(2),
    "key:d": Limit(3),
    "key:e": Limit(5),
    "key:often": Limit(2, SECOND // 200, 5),
}
LIMITED_QUEUE, QUEUE_LIMIT = "second", 6
QUEUES: Final = ("first", LIMITED_QUEUE, "third")
BACKLOG: Final = 100
"""Enqueuers pause while so many runs are unfinished: what matters is that each run meets trouble, not how many wait."""
Stop = Callable[[], bool]


def work() -> None:
    """Do nothing: the runs of a storm are executed by nobody."""


CALL: Final = Call(work, name="work")


class Log:
    """A file of this process alone, written line by line: whatever is in it has happened."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / f"log-{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def __call__(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


# -- a worker ------------------------------------------------------------------------------------------------------


def act_as_worker(store: JobStore, chance: random.Random, log: Log, stop: Stop) -> None:
    """Claim, look whether each run may really start, end it somehow; recover the runs of the dead."""
    node = f"{os.getpid()}-{chance.getrandbits(32):08x}"  # a claim of one token is answered as before
    settler, number, look_at = Settler(store), 0, 0.0
    while not stop():
        if time.monotonic() > look_at:
            look_at = time.monotonic() + 0.2
            lapsed = store.find_runs(RunQuery(lapsed=True), limit=100)
            for run in lapsed:
                settler.add(Report(run, Result.INTERRUPTED), recover(run, store.beat()), store.beat())
            _write(store, settler, log)
        number += 1
        queues = chance.choice([QUEUES, QUEUES, QUEUES[:2], QUEUES[2:]])
        limit = chance.randint(1, 12)
        page = store.claim([(queues, limit)], node=node, token=f"{node}-{number}", lease=LEASE)
        if not page.runs:
            time.sleep(0.01)
        for run in page.runs:
            _execute(store, settler, run, chance, log)
            if chance.random() < 0.3:
                _write(store, settler, log)
        _write(store, settler, log)


def _execute(store: JobStore, settler: Settler, run: Run, chance: random.Random, log: Log) -> None:
    now = store.beat()
    if run.refused is not None:
        report = Report(run, Result.REFUSED)
    else:
        for after, before in zip(run.after, store.standings([after.id for after in run.after]), strict=True):
            if before is None or before.status not in FINAL or not after.on & bit_of(before.status):
                log("early", run.id, after.id, "gone" if before is None else before.status)
        if chance.random() < 0.3:
            time.sleep(chance.random() * 0.01)
        dice = chance.random()
        if dice < 0.06:
            error = ValueError("bad luck")
            report = Report(run, Result.RAISED, None, error, describe(error, now, run.attempt), now, now)
        else:
            report = Report(run, Result.UNSTARTED if dice < 0.15 else Result.RETURNED, started_at=now, finished_at=now)
    settler.add(report, conclude(report, now, 0.0), now)


def _write(store: JobStore, settler: Settler, log: Log) -> None:
    for each in settler.settle(store.beat()):
        if each.accepted and each.outcome.run.status in FINAL:
            log("ended", each.outcome.run.id)


# -- an enqueuer ---------------------------------------------------------------------------------------------------


def act_as_enqueuer(store: JobStore, chance: random.Random, log: Log, stop: Stop) -> None:
    """Store random graphs, behind one another and behind whatever is there; now and then repeat a call."""
    recent: list[str] = []
    while not stop():
        if store.stats(RunQuery(status=UNFINISHED)).matching > BACKLOG:
            time.sleep(0.05)
            continue
        if chance.random() < 0.2:
            recent += [run.id for run in store.find_runs(RunQuery(), limit=40)]
        recent = recent[-200:]
        runs = list(_graph(store, chance, recent))
        answers = store.add_runs(runs)
        if chance.random() < 0.1 and store.add_runs(runs) != answers:
            log("wrong", "a repeated call was answered in another way:", answers)
        stored = [run.id for run, answer in zip(runs, answers, strict=True) if answer == run.id]
        log("added", *stored)
        recent += stored
        time.sleep(chance.random() * 0.1)


def _graph(store: JobStore, chance: random.Random, recent: list[str]) -> Iterator[Run]:
    ids: list[str] = []
    wide = chance.random() < 0.05
    now = store.beat()
    size = 60 if wide else chance.randint(1, 15)
    for number in range(size + wide):
        ids.append(f"run{chance.getrandbits(64):016x}")
        near = ids[-9:-1] + (chance.sample(recent, min(4, len(recent))) if chance.random() < 0.5 else [])
        chosen = chance.sample(sorted(set(near)), min(len(set(near)), chance.randint(0, 4)))
        if wide:
            chosen = ids[:-1] if number == size else []
        gate = chance.choice(list(LIMITS)) if chance.random() < 0.4 else None
        yield Run(
            id=ids[-1],
            call=CALL,
            created_at=now,
            run_at=-SECOND // 50 if chosen and chance.random() < 0.1 else now,
            queue=chance.choice(QUEUES),
            priority=chance.choice((0, 0, 0, 5)),
            policy=Policy(retries=chance.choice((0, 0, 1)), retention=3600.0),
            unique=f"key{chance.randrange(20)}" if not number and chance.random() < 0.1 else None,
            after=tuple(After(each, ON[chance.choice(("success", "success", "end", "failure"))]) for each in chosen),
            gate=gate,
            gate_spec=None if gate is None else LIMITS[gate].to_text(),
        )


# -- a person, an observer -----------------------------------------------------------------------------------------


def act_as_person(store: JobStore, chance: random.Random, log: Log, stop: Stop) -> None:
    """Cancel, send back, change and move runs, and set the numbers of gates, never above what their runs say."""
    runs = Runs(lambda: store, store.beat, lambda: UTC)
    while not stop():
        some = store.find_runs(RunQuery(), limit=100)
        for run in chance.sample(some, min(3, len(some))):
            if run.status in WAITING and chance.random() < 0.3:
                store.settle([change(run, priority=chance.choice((0, 5)), queue=chance.choice(QUEUES))])
            elif run.status not in FINAL:
                runs.cancel(run.id)
        bad = [run for run in some if run.status in (Status.FAILED, Status.CANCELLED)]
        for run in chance.sample(bad, min(2, len(bad))):
            log("sent_back", run.id)  # first: whoever sees it back must find this
            try:
                runs.retry(run.id)
            except ValueError:  # it was sent back or changed meanwhile
                continue
        gate = chance.choice(list(LIMITS))
        store.set_gate(gate, chance.choice((0, 1, None)))
        store.set_gate(gate, None)
        time.sleep(0.05)


def act_as_observer(store: JobStore, chance: random.Random, log: Log, stop: Stop) -> None:
    """Count the running runs of each gate, and of the queue that has a limit."""
    allowed = {gate: limit.at_once or 0 for gate, limit in LIMITS.items()}
    while not stop():
        for gate, number in allowed.items():
            running = store.find_runs(RunQuery(gate=gate, status=(Status.RUNNING,)))
            slots = [run.id for run in running if run.refused is None]
            if len(slots) > number:
                log("over", gate, *slots)
        running = store.find_runs(RunQuery(queue=LIMITED_QUEUE, status=(Status.RUNNING,)))
        if len(running) > QUEUE_LIMIT:
            log("over", QUEUE_GATE, *[run.id for run in running])
        time.sleep(0.01)
