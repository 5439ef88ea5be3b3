"""Several schedulers and workers at once, some of which die in the middle of every few fires."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from threading import Lock
from time import sleep
from typing import Any

import pytest

from mainspring.core.plan import Place, firing, plan
from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.split import SplitJobStore
from mainspring.testing.conformance.helpers import claim, make_job, new_token, succeed, together
from tests.jobstores.split.kit import Killed, open_firings
from tests.record_stores import DictRecords

JOBS, SCHEDULERS, WORKERS, LEASE = 400, 5, 3, 1.0
ROUNDS = 600
"""At most: all of them together must not move the clock by an hour."""
QUEUES = ("default", ".default")
"""The queue of the workers, and that of a local executor, in whose slots a split store starts fired runs."""


class Frail(SplitJobStore):
    """Dies before the runs, after the runs and before the note in turn, at every second fire."""

    fires = count()

    def fire(self, *args: Any) -> Any:
        point = next(Frail.fires) % 6
        add, close = self._add_fired, self._close
        try:
            if point in (0, 2):
                self._add_fired = partial(_die, add if point == 2 else None)  # type: ignore[method-assign]
            elif point == 4:
                self._close = partial(_die, None)  # type: ignore[method-assign]
            return super().fire(*args)
        finally:
            self._add_fired, self._close = add, close  # type: ignore[method-assign]


def _die(act: Callable[..., Any] | None, *args: Any) -> Any:
    if act is not None:
        act(*args)
    raise Killed


@pytest.fixture
def _hasty_threads() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("_hasty_threads")
def test_every_fire_is_run_once_whoever_dies() -> None:
    jobs, runs = DictRecords(), MemoryJobStore()
    store = SplitJobStore(jobs, runs)
    made = [make_job(store, f"job-{n}", every=10**8) for n in range(JOBS)]
    store.add_jobs(made)
    expected = {f"{job.id}@{job.incarnation}@{job.at}" for job in made}
    executed: Counter[str] = Counter()
    lock = Lock()

    def finished() -> bool:
        with lock:
            return executed.total() >= JOBS and open_firings(jobs) == 0

    def act(index: int) -> None:
        mine = Frail(jobs, runs)
        for number in range(ROUNDS):
            if finished():
                return
            if index >= SCHEDULERS:
                sleep(0)
                batch = claim(mine, *QUEUES, limit=7)
                done = mine.settle([succeed(mine, run) for run in batch])
                mine.delete_runs([run.id for run in batch])
                with lock:
                    executed.update(run.id for run, accepted in zip(batch, done, strict=True) if accepted)
                continue
            now = mine.beat()
            place = Place(".default", "node", new_token()) if number % 3 == 0 else Place("default")
            steps = [firing(due, plan(due, now), place, now) for due in mine.due(4, 0).jobs]
            try:
                fired = [run_id for answer in mine.fire(steps, LEASE) for run_id in answer or ()]
            except Killed:
                mine = Frail(jobs, runs)
                fired = []
            if place.token is not None:  # what came claimed is run here
                held = claim(mine, *QUEUES, token=place.token, limit=0)
                done = mine.settle([succeed(mine, run) for run in held])
                with lock:
                    executed.update(run.id for run, accepted in zip(held, done, strict=True) if accepted)
                assert set(fired) <= {run.id for run in held}
            mine.shift_clock(LEASE + 0.1)

    together(SCHEDULERS + WORKERS, act)
    assert executed == dict.fromkeys(expected, 1)
    assert open_firings(jobs) == 0
    assert store.stats(RunQuery(status=())).matching <= JOBS
