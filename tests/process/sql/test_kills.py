"""A database server is killed in the middle of the work: nothing is lost and nothing is doubled."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest

from mainspring.core.plan import Place, firing, plan
from mainspring.core.run import Run, Status
from mainspring.errors import OutcomeUnknown, StoreUnavailable
from mainspring.jobstores.base import RunQuery
from mainspring.jobstores.sqlalchemy import SQLAlchemyJobStore
from mainspring.testing.conformance.helpers import add_run, claim, make_job, succeed
from tests.servers import MariaDB, PostgreSQL, Server
from tests.waiting import until

JOBS = 600
KINDS = pytest.mark.parametrize("kind", [PostgreSQL, MariaDB], ids=["postgresql", "mariadb"])
Start = Callable[[type[Server]], Server]
T = TypeVar("T")


class Ledger:
    """What the store has answered, kept apart from it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.fired: Counter[str] = Counter()
        self.settled: Counter[str] = Counter()
        self.uncertain: set[str] = set()
        self.outages = 0

    def count(self, kind: Counter[str], ids: list[str]) -> None:
        with self.lock:
            kind.update(ids)


def _schedule(store: SQLAlchemyJobStore, ledger: Ledger, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            page = store.due(15, 0.5)
            steps = [firing(due, plan(due, page.now), Place("default"), page.now) for due in page.jobs]
            if not steps:
                stop.wait(0.02)
            try:
                answers = store.fire(steps, 60)
            except OutcomeUnknown:
                with ledger.lock:
                    ledger.uncertain.update(run.id for step in steps for run in step.runs)
                raise
            ledger.count(ledger.fired, [run_id for answer in answers for run_id in answer or ()])
        except StoreUnavailable:
            ledger.outages += 1
            stop.wait(0.05)


def _work(store: SQLAlchemyJobStore, ledger: Ledger, stop: threading.Event) -> None:
    node = threading.current_thread().name
    number = 0
    while not stop.is_set():
        number += 1
        token = f"{node}-{number}"
        runs = _persist(ledger, stop, partial(claim, store, limit=15, token=token))
        if not runs:
            stop.wait(0.02)
            continue
        try:
            answers = _succeed_all(store, runs)
        except StoreUnavailable as error:
            # Said again: those that were written before the reply was lost are refused now, the others are written.
            ledger.outages += 1
            if isinstance(error, OutcomeUnknown):
                with ledger.lock:
                    ledger.uncertain.update(run.id for run in runs)
            answers = _persist(ledger, stop, partial(_succeed_all, store, runs)) or []
        ledger.count(ledger.settled, [run.id for run, told in zip(runs, answers, strict=False) if told])


def _succeed_all(store: SQLAlchemyJobStore, runs: list[Run]) -> list[bool]:
    return store.settle([succeed(store, run) for run in runs])


def _persist(ledger: Ledger, stop: threading.Event, act: Callable[[], T]) -> T | None:
    while not stop.is_set():
        try:
            return act()
        except StoreUnavailable:
            ledger.outages += 1
            stop.wait(0.05)
    return None


@KINDS
def test_a_server_killed_while_jobs_fire_and_runs_end_loses_and_doubles_nothing(
    kind: type[Server], start_server: Start
) -> None:
    server = start_server(kind)
    store = SQLAlchemyJobStore(server.url)
    store.add_jobs([make_job(store, f"job-{n}", due_in=-30, every=3600) for n in range(JOBS)])
    expected = {f"{job.id}@{job.incarnation}@{job.at}" for job in store.get_all_jobs()}
    ledger, stop = Ledger(), threading.Event()
    loops = [(_schedule, n) for n in range(2)] + [(_work, n) for n in range(2)]
    threads = [
        threading.Thread(target=loop, args=(store, ledger, stop), name=f"t{n}", daemon=True) for loop, n in loops
    ]
    for thread in threads:
        thread.start()
    try:
        for part in (JOBS // 5, JOBS // 2):
            until(lambda part=part: len(ledger.fired) >= part)  # type: ignore[misc]
            seen = ledger.outages
            server.kill()
            until(lambda seen=seen: ledger.outages > seen)  # type: ignore[misc]
            server.restart()
        until(lambda: store.stats().totals["succeeded"] >= JOBS, despite=StoreUnavailable)
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    runs = store.find_runs(RunQuery(), limit=10 * JOBS)
    assert {run.id for run in runs} == expected
    assert {(run.status, run.attempt) for run in runs} == {(Status.SUCCEEDED, 1)}
    assert store.stats().totals["succeeded"] == JOBS
    for answers in (ledger.fired, ledger.settled):
        assert set(answers.values()) == {1}
        assert answers.keys() <= expected
        assert expected - answers.keys() <= ledger.uncertain
    store.shutdown()


@KINDS
def test_the_next_call_after_a_restart_works(kind: type[Server], start_server: Start) -> None:
    server = start_server(kind)
    store = SQLAlchemyJobStore(server.url)
    before = add_run(store)
    server.kill()
    with pytest.raises(StoreUnavailable):
        store.beat()
    server.restart()
    after = add_run(store)
    assert {run.id for run in claim(store)} == {before.id, after.id}
    server.restart()
    assert store.stats().jobs == 0
    jobs = [make_job(store, f"job-{n}", due_in=n) for n in range(2)]
    store.add_job(jobs[0])
    server.restart()
    store.add_job(jobs[1])  # one statement that commits itself: it must not be the one to meet the dead connection
    assert [job.id for job in store.get_all_jobs()] == ["job-0", "job-1"]
    store.shutdown()
