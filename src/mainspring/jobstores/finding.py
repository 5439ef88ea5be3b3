"""Find runs in any store by people's criteria, page by page; find a job by its id."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Final

from msgspec.structs import replace

from mainspring.core.instants import SECOND, to_us
from mainspring.core.job import Job
from mainspring.core.run import UNFINISHED, Run, Status
from mainspring.core.showing.run_view import RunView
from mainspring.errors import near
from mainspring.jobstores.base import JobStore, RunQuery, unknown_job
from mainspring.util import convert_to_datetime

__all__ = [
    "FIND_PAGE_RUNS",
    "count_unfinished",
    "find_job",
    "fired_instants",
    "instant_of",
    "make_query",
    "newest",
    "pages",
]

FIND_PAGE_RUNS: Final = 1000
"""Read this many runs at a time."""


def find_job(store: JobStore, job_id: str) -> Job:
    """Return a job; raise JobLookupError, which suggests similar ids."""
    job = store.lookup_job(job_id)
    if job is None:
        raise unknown_job(store, job_id)
    return job


def make_query(
    status: str | Iterable[str] | None = None,
    queue: str | None = None,
    group: str | None = None,
    job: str | None = None,
) -> RunQuery:
    """Return the query for criteria given as text."""
    wanted = () if status is None else (status,) if isinstance(status, str) else tuple(status)
    try:
        statuses = tuple(Status(each) for each in wanted)
    except ValueError:
        known = [each.value for each in Status]
        bad = next(each for each in wanted if each not in known)
        raise ValueError(f"no status is called {bad!r}{near(str(bad), known)}") from None
    return RunQuery(status=statuses, queue=queue, group=group, job_id=job)


def newest(
    store: JobStore, query: RunQuery, limit: int | None, after: Run | None, task: str | None, oldest: int | None
) -> list[Run]:
    """Return up to `limit` of the newest runs that match, of one task, and not made before `oldest`.

    Stores cannot search by task, which is part of the signed bytes. So this reads and skips the runs of other tasks.
    """
    found: list[Run] = []
    query = query if oldest is None else replace(query, since=oldest)
    for page in pages(store, query, after, FIND_PAGE_RUNS if task is not None or limit is None else limit):
        for run in page:
            if oldest is not None and run.created_at < oldest:  # the newest come first
                return found
            if task is None or _is_of(run, task):
                found.append(run)
                if len(found) == limit:
                    return found
    return found


def pages(
    store: JobStore, query: RunQuery, after: Run | None = None, size: int = FIND_PAGE_RUNS
) -> Iterator[list[Run]]:
    """Yield the runs that match, newest first, a page at a time."""
    while page := store.find_runs(query, after=after, limit=size):
        yield page
        if len(page) < size:
            return
        after = page[-1]


def _is_of(run: Run, task: str) -> bool:
    name = RunView(run, None).task
    return name == task or name.rpartition(":")[2] == task


def instant_of(since: datetime | timedelta, now: Callable[[], int], zone: Callable[[], tzinfo]) -> int:
    """Return the instant that a datetime, or a time span before now, stands for."""
    if isinstance(since, timedelta):
        return now() - int(since.total_seconds() * SECOND)
    if isinstance(since, int | float):
        raise TypeError(
            f"since must be a datetime or a timedelta back from now, such as timedelta(hours=1), not {since!r}"
        )
    moment = convert_to_datetime(since, zone(), "since")
    assert moment is not None
    return to_us(moment)


def count_unfinished(store: JobStore, jobs: Sequence[tuple[str, int]]) -> list[int]:
    """Return how many unfinished runs each job has, named by id and incarnation."""
    stems = [f"{job_id}@{incarnation}" for job_id, incarnation in jobs]
    if len(jobs) > 1:
        found = store.find_runs(RunQuery(status=UNFINISHED), limit=FIND_PAGE_RUNS)
        if len(found) < FIND_PAGE_RUNS:  # these are all unfinished runs
            counted = _by_stem(found)
            return [counted[stem] for stem in stems]
    return [
        sum(_by_stem(page)[stem] for page in pages(store, RunQuery(status=UNFINISHED, job_id=job_id)))
        for (job_id, _), stem in zip(jobs, stems, strict=True)
    ]


def fired_instants(store: JobStore, job: Job, instants: Sequence[int]) -> set[int]:
    """Return the fires of a job that already have a run; jitter makes a run later than its fire."""
    jitter = int((job.trigger.jitter or 0) * SECOND)
    if not jitter:
        ids = [f"{job.id}@{job.incarnation}@{at}" for at in instants]
        found = store.get_runs(ids) if ids else []
        return {at for at, run in zip(instants, found, strict=True) if run is not None}
    times = sorted(
        run.fire_time
        for page in pages(store, make_query(job=job.id))
        for run in page
        if run.fire_time is not None and run.status is not Status.MISSED
    )
    return {at for at in instants if (n := bisect_left(times, at)) < len(times) and times[n] <= at + jitter}


def _by_stem(runs: Sequence[Run]) -> Counter[str]:
    """Count fired runs by `<job id>@<incarnation>`."""
    return Counter(run.id.rpartition("@")[0] for run in runs if run.counted and not run.id.endswith(":missed"))
