"""A store with one of everything in it, of each kind a victim to be altered and a neighbour, and a day in its life."""

from __future__ import annotations

from typing import Final, NamedTuple

from mainspring.core.run import FINAL, WAITING, Beat, Run, Status
from mainspring.core.transitions import recover
from mainspring.core.waiting.gates import QUEUE_GATE
from mainspring.jobstores.base import BrokenJob, JobStore, NodeInfo, RunQuery
from mainspring.testing.conformance.helpers import (
    LEASE,
    add_job,
    add_run,
    claim,
    due_one,
    fire,
    give_back,
    lapsed,
    settle,
    start,
    succeed,
)

__all__ = ["KEY", "Seen", "fill", "live_through"]

KEY: Final = "a key of the tests, long enough"
QUEUES: Final = ("default", "abc", "pending", "1")
_ALIVE: Final = 10 * 86400.0


def fill(store: JobStore) -> None:
    """Put one of everything in, and a neighbour beside it."""
    for name in ("job-victim", "job-good"):
        add_job(store, name, due_in=-10, executor="queue")
    for name in ("job-late", "job-late-good"):
        add_job(store, name, due_in=5, executor="queue")
    for name in ("broken-victim", "broken-good"):
        assert store.set_aside(name, add_job(store, name, executor="queue").version, "bad_data: for a test")
    for name in ("ended-victim", "ended-good"):
        settle(store, succeed(store, start(store, name), {"value": 1}))
    for name in ("gone-victim", "gone-good"):
        settle(store, succeed(store, start(store, name)))
    assert store.delete_runs(["gone-victim", "gone-good"]) == 2
    for name in ("runs-victim", "runs-good"):
        run = start(store, name, unique=f"key of {name}", group="group")
        store.extend([Beat(run.id, str(run.token), progress=0.5, log=("a line",))], LEASE)
    add_job(store, "chain", due_in=-10, executor="queue")
    fire(store, due_one(store, "chain"))
    for name in ("waits-victim", "waits-good"):
        add_run(store, name, unique=f"key of {name}", group="group")
    for name in ("paused-victim", "paused-good"):
        store.set_gate(f"{QUEUE_GATE}{name}", 0)
    for name in ("node-victim", "node-good"):
        store.beat(NodeInfo(id=name, host="host", pid=1, started_at=store.beat()), _ALIVE)


class Seen(NamedTuple):
    """What there was at the end of the day."""

    fired: set[str]
    runs: dict[str, Run]
    jobs: set[str]
    broken: dict[str, BrokenJob]
    nodes: set[str]
    queues: set[str]

    def check_neighbours(self) -> None:
        """Raise if a record beside the altered one came to harm."""
        for name in ("waits-good", "runs-good", "ended-good"):
            assert self.runs[name].status is Status.SUCCEEDED, self.runs[name]
        assert {"job-good", "job-late-good"} <= self.fired
        assert "broken-good" in self.broken or "broken-good" in self.jobs
        assert "node-good" in self.nodes
        assert "paused-good" in self.queues

    def check_run(self, run_id: str, *, may_wait: bool, may_end: bool) -> None:
        """Raise if a run whose record was altered has vanished, or waits for ever."""
        run = self.runs[run_id]
        set_aside = run.status is Status.BROKEN and bool(run.reason)
        waits = may_wait and run.status in WAITING
        ended = run.status is Status.SUCCEEDED or (may_end and run.status in FINAL)
        assert set_aside or waits or ended, run

    def check_job(self, job_id: str, *, may_wait: bool) -> None:
        """Raise if a job whose record was altered has vanished, or waits for ever."""
        if job_id in self.broken:
            assert self.broken[job_id].reason
        else:
            assert job_id in self.fired or (may_wait and job_id in self.jobs)


def live_through(store: JobStore) -> Seen:
    """Use every verb that nodes and people use, twice, until nothing more happens; return what there is at the end."""
    fired: set[str] = set()
    for _ in range(2):
        _look(store, fired)
        for due in store.due(100, 2.0).jobs:
            if fire(store, due):
                fired.add(due.job.id)
        _work(store)
        store.shift_clock(LEASE + 10)
        store.beat(NodeInfo(id="node-new", host="host", pid=2, started_at=store.beat()), _ALIVE)
        store.mend(thorough=True)
        store.settle([recover(run, store.beat()) for run in lapsed(store, 100)])
        store.prune()
        store.due(0, 0)
    _work(store)
    add_job(store, "job-new", due_in=-1, executor="queue")
    fire(store, due_one(store, "job-new"))
    add_run(store, "run-new")
    assert "run-new" in _work(store)
    return _look(store, fired)


def _work(store: JobStore) -> set[str]:
    runs = claim(store, *QUEUES)
    if runs:
        store.extend([Beat(run.id, str(run.token), progress=1) for run in runs], LEASE)
        first, *others = runs
        settle(store, give_back(store, first))
        store.settle([succeed(store, run, "done") for run in others])
        store.settle([succeed(store, run, "done") for run in claim(store, *QUEUES)])
    return {run.id for run in runs}


def _look(store: JobStore, fired: set[str]) -> Seen:
    """Look at all there is, as the CLI and the dashboard do."""
    runs = store.find_runs(RunQuery(), limit=1000)
    by_pages: list[Run] = []
    while page := store.find_runs(RunQuery(), after=by_pages[-1] if by_pages else None, limit=3):
        by_pages += page
    assert [run.id for run in by_pages] == [run.id for run in runs]
    for status in Status:
        store.find_runs(RunQuery(status=(status,)))
        store.stats(RunQuery(status=(status,)))
    for query in (RunQuery(queue="default"), RunQuery(group="group"), RunQuery(job_id="chain")):
        store.find_runs(query)
        store.stats(query)
    store.get_runs(["waits-victim", "runs-victim", "ended-victim"])
    store.lookup_job("job-victim")
    store.examine_jobs()
    store.health()
    store.stats()
    return Seen(
        fired,
        {run.id: run for run in runs},
        {job.id for job in store.get_all_jobs()},
        {each.id: each for each in store.get_jobs(broken=True).broken},
        {node.id for node in store.nodes()},
        {queue.name for queue in store.stats().queues},
    )
