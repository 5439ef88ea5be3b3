"""Builders of the suite's jobs, runs and outcomes. Times are relative to the store's clock, which tests move."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Barrier
from typing import Any, Final, TypeVar

import msgspec
import pytest

from mainspring.core.instants import SECOND, from_us
from mainspring.core.job import Job
from mainspring.core.plan import DueJob, Firing, Place, firing, plan
from mainspring.core.references import obj_to_ref
from mainspring.core.run import (
    ON,
    UNFINISHED,
    WAITING,
    After,
    Beat,
    Call,
    Condition,
    Outcome,
    Report,
    Result,
    Run,
    Status,
    describe,
)
from mainspring.core.transitions import cancel, conclude, retry
from mainspring.core.waiting.gates import QUEUE_GATE
from mainspring.jobstores.base import ClaimedRuns, JobStore, RunQuery
from mainspring.triggers.interval import IntervalTrigger

__all__ = [
    "CALL",
    "LEASE",
    "NODE",
    "UNFINISHED",
    "add_after",
    "add_job",
    "add_run",
    "beat",
    "behind",
    "break_",
    "cancel_all",
    "chained_fires",
    "claim",
    "current",
    "drop",
    "due_one",
    "fail",
    "fire",
    "fired_run",
    "give_back",
    "in_one_shard",
    "keep",
    "lapsed",
    "look",
    "make_job",
    "make_run",
    "miss",
    "moved",
    "new_id",
    "new_token",
    "other_work",
    "pause",
    "plain",
    "reference",
    "resume",
    "send_back",
    "settle",
    "start",
    "step",
    "stop",
    "stored",
    "succeed",
    "together",
    "unfinished",
    "work",
]

T = TypeVar("T")

NODE: Final = "node-1"
LEASE: Final = 60.0
"""Lease of the claims, in seconds: a slow server never reaches its end, since only `shift_clock` moves the time."""

_numbers = count(1)
_tags = [""]
"""The prefixes of new ids; the last one is in use."""


def work(*args: Any, **kwargs: Any) -> None:
    """Do nothing: the suite's jobs and runs refer to this function."""


def other_work(*args: Any, **kwargs: Any) -> None:
    """Do nothing: the function for a second reference."""


CALL: Final = Call(work, name="work")


def reference(func: Callable[..., Any] | str) -> str:
    """Return a callable's reference, whether the store returns the callable or its name."""
    return func if isinstance(func, str) else obj_to_ref(func)


def new_id(word: str = "run") -> str:
    """Make an id that no other test uses."""
    return f"{_tags[-1]}{word}-{next(_numbers)}"


def in_one_shard(conformance: type[T]) -> type[T]:
    """Begin the new ids of all tests of a class with one tag: an edge cannot leave its shard."""

    def pinned(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            _tags.append("{flow}")
            try:
                test(*args, **kwargs)
            finally:
                _tags.pop()

        return run

    for name, test in list(vars(conformance).items()):
        if name.startswith("test_"):
            setattr(conformance, name, pinned(test))
    return conformance


def new_token() -> str:
    """Make a token that no other claim uses."""
    return new_id("token")


# -- jobs and fires ----------------------------------------------------------------------------------------------


def make_job(
    store: JobStore,
    id: str = "job",
    *,
    due_in: float | None = -10.0,
    every: float = 60.0,
    zone: str = "UTC",
    call: Call = CALL,
    **fields: Any,
) -> Job:
    """Make a job that is due `due_in` seconds from now (None: paused) and then at a regular interval."""
    at = None if due_in is None else store.beat() + int(due_in * SECOND)
    start = from_us(store.beat() if at is None else at)
    trigger = IntervalTrigger(seconds=every, start_date=start, timezone=zone)
    return Job(id, call, trigger, **{"at": at, **fields})


def add_job(store: JobStore, id: str = "job", **fields: Any) -> Job:
    """Make a job and store it."""
    job = make_job(store, id, **fields)
    store.add_job(job)
    return job


def stored(store: JobStore, id: str = "job") -> Job:
    """Return a stored job, which must exist."""
    job = store.lookup_job(id)
    assert job is not None, f"job {id!r} is not in the store"
    return job


def due_one(store: JobStore, id: str = "job") -> DueJob:
    """Return a job, which must be due, without hiding it."""
    found = [due for due in store.due(1000, 0).jobs if due.job.id == id]
    assert len(found) == 1, f"job {id!r} is handed out {len(found)} times"
    return found[0]


def fire(store: JobStore, due: DueJob, place: Place | None = None) -> tuple[str, ...] | None:
    """Plan and fire a job as a scheduler does."""
    now = store.beat()
    return store.fire([firing(due, plan(due, now), place or Place("default"), now)], LEASE)[0]


def step(store: JobStore, job: Job, *, next_in: float | None = 50.0, **fields: Any) -> Firing:
    """Make the step that fires a job, in the version that was read; it is due again `next_in` seconds from now."""
    at = None if next_in is None else store.beat() + int(next_in * SECOND)
    return Firing(job_id=job.id, version=job.version, next_at=at, next_nominal=at, **fields)


def fired_run(store: JobStore, job: Job, **fields: Any) -> Run:
    """Make the run of a job's current fire."""
    name = f"{job.id}@{job.incarnation}@{job.at}"
    return make_run(store, name, **{"job_id": job.id, "fire_time": job.at, **fields})


def chained_fires(store: JobStore, job: Job, number: int) -> tuple[Run, ...]:
    """Make the runs of several overdue fires of a job: each comes after the one before, and only the last counts."""
    runs: list[Run] = []
    for place in range(number):
        name = f"{job.id}@{job.incarnation}@{(job.at or 0) + place}"
        after = behind(*runs[-1:], on="end")
        runs.append(make_run(store, name, job_id=job.id, after=after, counted=place == number - 1))
    return tuple(runs)


def unfinished(store: JobStore, job: Job) -> int:
    """Count a job's unfinished runs by reading all its runs."""
    runs = store.find_runs(RunQuery(status=UNFINISHED, job_id=job.id), limit=10_000)
    return sum(run.counted and run.id.startswith(f"{job.id}@{job.incarnation}@") for run in runs)


# -- runs and outcomes -------------------------------------------------------------------------------------------


def make_run(store: JobStore, id: str | None = None, *, due_in: float = -10.0, **fields: Any) -> Run:
    """Make a pending run that may be claimed `due_in` seconds from now."""
    now = store.beat()
    base = {"id": id or new_id(), "call": CALL, "created_at": now, "run_at": now + int(due_in * SECOND)}
    return Run(**{**base, **fields})


def add_run(store: JobStore, id: str | None = None, **fields: Any) -> Run:
    """Make a run and store it."""
    run = make_run(store, id, **fields)
    assert store.add_runs([run]) == [run.id]
    return run


def behind(*runs: Run, on: str | int = "success") -> tuple[After, ...]:
    """Make the predecessors of a run; `on` is a name in `ON` or a mask."""
    return tuple(After(run.id, ON[on] if isinstance(on, str) else on) for run in runs)


def add_after(store: JobStore, *runs: Run, on: str | int = "success", **fields: Any) -> Run:
    """Store a run that comes after others, in the queue `next`; return it as stored."""
    return current(store, add_run(store, **{"queue": "next", "after": behind(*runs, on=on), **fields}))


def claim(
    store: JobStore, *queues: str, limit: int = 1000, token: str | None = None, node: str = NODE, lease: float = LEASE
) -> list[Run]:
    """Claim the due runs of the queues, by default of `default`."""
    return look(store, *queues, limit=limit, token=token, node=node, lease=lease).runs


def look(
    store: JobStore, *queues: str, limit: int = 1000, token: str | None = None, node: str = NODE, lease: float = LEASE
) -> ClaimedRuns:
    """Claim the due runs of the queues, and return the store's full answer."""
    return store.claim([(queues or ("default",), limit)], node=node, token=token or new_token(), lease=lease)


def start(store: JobStore, id: str | None = None, **fields: Any) -> Run:
    """Store a run and claim it."""
    run = add_run(store, id, **fields)
    claimed = claim(store, run.queue, limit=1)
    assert [one.id for one in claimed] == [run.id]
    return claimed[0]


def lapsed(store: JobStore, limit: int = 10) -> list[Run]:
    """Return running runs whose lease has expired."""
    return store.find_runs(RunQuery(lapsed=True), limit=limit)


def moved(run: Run, queue: str) -> Run:
    """Return a run after a move to another queue, with its call signed again for that queue."""
    call = msgspec.structs.replace(run.call, frame=None)
    return msgspec.structs.replace(run, queue=queue, moved=True, call=call)


def pause(store: JobStore, queue: str) -> None:
    """Pause a queue."""
    store.set_gate(f"{QUEUE_GATE}{queue}", 0)


def resume(store: JobStore, queue: str) -> None:
    """Resume a queue, without a limit."""
    store.set_gate(f"{QUEUE_GATE}{queue}", None)


def keep(store: Any, number: int) -> None:
    """Make the store that holds the runs keep this many finished ones."""
    holder = getattr(store, "runs", store)
    if not hasattr(holder, "keep_runs"):
        pytest.skip("this store has no attribute keep_runs that says how many finished runs it keeps")
    holder.keep_runs = number


def current(store: JobStore, run: Run) -> Run:
    """Return the current record of a run, which must exist."""
    found = store.get_runs([run.id])[0]
    assert found is not None, f"run {run.id!r} is not in the store"
    return found


def settle(store: JobStore, outcome: Outcome) -> bool:
    """Settle one outcome."""
    return store.settle([outcome])[0]


def succeed(store: JobStore, run: Run, value: Any = None) -> Outcome:
    """Make the outcome of a run that returned."""
    now = store.beat()
    return conclude(Report(run, Result.RETURNED, value, started_at=now, finished_at=now), now, 0.5)


def fail(store: JobStore, run: Run, message: str = "no") -> Outcome:
    """Make the outcome of a run that raised: failed, or to be retried if its policy has retries left."""
    now = store.beat()
    exception = ValueError(message)
    error = describe(exception, now, run.attempt)
    report = Report(run, Result.RAISED, exception=exception, error=error, started_at=now, finished_at=now)
    return conclude(report, now, 0.5)


def stop(store: JobStore, run: Run) -> Outcome:
    """Make the outcome of a run that was cancelled while it ran."""
    return conclude(Report(run, Result.CANCELLED), store.beat(), 0.5)


def miss(store: JobStore, run: Run) -> Outcome:
    """Make the outcome of a run that was not started in time."""
    return conclude(Report(run, Result.LATE), store.beat(), 0.5)


def give_back(store: JobStore, run: Run) -> Outcome:
    """Make the outcome of a run that its node gives back unstarted."""
    return conclude(Report(run, Result.UNSTARTED), store.beat(), 0.5)


def break_(store: JobStore, run: Run) -> Outcome:
    """Make the outcome of a run whose record no node can execute."""
    broken = msgspec.structs.replace(
        run, status=Status.BROKEN, reason="unreadable", finished_at=store.beat(), lease_until=None, unique=None
    )
    return Outcome(broken, Condition.HELD)


def drop(store: JobStore, run: Run, by: str | None = None) -> Outcome:
    """Make the outcome that cancels a run because another refused it: `by`, or the one in its record."""
    ended = cancel(run, store.beat()).run
    return Outcome(msgspec.structs.replace(ended, refused=by or run.refused), Condition.REFUSED)


def send_back(store: JobStore, run: Run) -> Outcome:
    """Make the outcome by which a person sends an ended or refused run back behind its predecessors."""
    if run.status in WAITING:
        return Outcome(msgspec.structs.replace(run, status=Status.BLOCKED, refused=None), Condition.WAITING)
    again = retry(run, store.beat()).run
    return Outcome(msgspec.structs.replace(again, status=Status.BLOCKED, refused=None), Condition.FINISHED)


def cancel_all(store: JobStore, queue: str = "default") -> int:
    """Cancel the waiting runs of a queue; return their number."""
    waiting = store.find_runs(RunQuery(status=(Status.PENDING,), queue=queue), limit=10_000)
    return sum(store.settle([cancel(run, store.beat()) for run in waiting]))


def beat(run: Run, **reports: Any) -> Beat:
    """Make a sign of life from the holder of a run."""
    return Beat(run.id, str(run.token), **reports)


def plain(run: Run) -> dict[str, Any]:
    """Return all fields of a run, with its callable by name, to compare a written record with a read one."""
    fields = msgspec.structs.asdict(run)
    call = fields.pop("call")
    return {**fields, "func": reference(call.func), "args": call.args, "kwargs": dict(call.kwargs), "name": call.name}


# -- several at once ---------------------------------------------------------------------------------------------


def together(number: int, act: Callable[[int], T]) -> list[T]:
    """Call `act(0)`, `act(1)`, ... in `number` threads that start at the same moment."""
    barrier = Barrier(number)

    def begin(index: int) -> T:
        barrier.wait(timeout=60)
        return act(index)

    with ThreadPoolExecutor(number) as threads:
        return list(threads.map(begin, range(number)))
