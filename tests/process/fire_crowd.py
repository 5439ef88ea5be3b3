"""Several schedulers fire the jobs of one store while something is done to its server: none is lost, none doubled."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from mainspring.core.instants import SECOND
from mainspring.core.plan import Place, firing, plan
from mainspring.errors import StoreUnavailable
from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.memory import MemoryJobStore
from mainspring.jobstores.split import SplitJobStore
from mainspring.testing.conformance.helpers import make_job

EVERY_SECONDS = 10
LEASE = 1.0
SECONDS = 90.0


def fire_through(
    make: Callable[[MemoryJobStore], SplitJobStore], hurt: Callable[[], object], *, rounds: int, jobs: int = 24
) -> None:
    """Fire the jobs in rounds, in each of which the server is hurt once; each fire has made one run."""
    runs = MemoryJobStore()
    stores = [make(runs) for _ in range(3)]
    for store in stores:
        store.start(None, "default")
    options: dict[str, Any] = {"max_instances": 10**6, "coalesce": False, "misfire_grace_time": None}
    made = [make_job(stores[0], f"j{n:02}", due_in=EVERY_SECONDS, every=EVERY_SECONDS, **options) for n in range(jobs)]
    stores[0].add_jobs(made)
    first = {job.id: job.at for job in made}
    done = threading.Event()
    threads = [threading.Thread(target=_fire, args=(store, seed, done)) for seed, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    try:
        for number in range(rounds):
            runs.shift_clock(EVERY_SECONDS + 1)
            time.sleep(random.Random(number).random() * 0.1)  # anywhere in the middle of the fires
            hurt()
            _await_rest(stores[0], runs)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    found = Counter(run.job_id for run in runs.find_runs(RunQuery(), limit=100_000))
    advanced = {
        job.id: ((job.at or 0) - (first[job.id] or 0)) // (EVERY_SECONDS * SECOND) for job in stores[0].get_all_jobs()
    }
    for store in stores:
        store.shutdown()
    assert len(advanced) == jobs
    assert min(advanced.values()) >= rounds
    assert found == advanced


def _fire(store: SplitJobStore, seed: int, done: threading.Event) -> None:
    rng = random.Random(seed)
    while not done.is_set():
        try:
            page = store.due(rng.choice([3, 6, 12]), 0.2)
            steps = [firing(due, plan(due, page.now), Place("default"), page.now) for due in page.jobs]
            if steps:
                store.fire(steps, LEASE)
            else:
                done.wait(0.02)
        except StoreUnavailable:
            done.wait(0.05)


def _await_rest(store: SplitJobStore, runs: MemoryJobStore) -> None:
    """Wait until every job has fired, and no firing is open."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            now = runs.beat()
            states = [kept.state for kept in store._everything("job:")]
            if all(state.fired is None and state.at is not None and state.at > now for state in states):
                return
        except StoreUnavailable:
            pass
        time.sleep(0.05)
    raise AssertionError("the jobs do not come to rest")
