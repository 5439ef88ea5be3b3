"""List, find and preview the jobs of an app or a scheduler. The job book adds the verbs that change them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final, Literal, NamedTuple, overload

from mainspring.core.instants import SECOND, to_us
from mainspring.core.job import Job
from mainspring.core.schedules.upcoming import Fire, fires_between, preview
from mainspring.errors import JobLookupError, UnknownAlias
from mainspring.jobstores.base import JobStore
from mainspring.util import convert_to_datetime

__all__ = ["JobLookup", "PendingJob"]

_Jobs = list[Job]  # inside the class, `list` is a verb
_Moments = list[datetime]
_Fires = list[Fire]

SUGGEST_FROM_JOBS: Final = 1000
"""Read the ids of at most this many jobs to suggest the one that the caller meant."""


class PendingJob(NamedTuple):
    """A job that waits for its scheduler to start, the alias of its store, and whether it may replace another job."""

    job: Job
    alias: str
    replace: bool


class JobLookup(ABC):
    """The verbs that only read the jobs of an app or a scheduler.

    `stores` returns the stores by alias, or None while new jobs have to wait for the start. `now` returns the time of
    the store with an alias.
    """

    def __init__(
        self,
        stores: Callable[[], Mapping[str, JobStore] | None],
        now: Callable[[str], int],
        zone: Callable[[], tzinfo],
    ) -> None:
        self._stores, self._now, self._zone = stores, now, zone
        self.pending: list[PendingJob] = []
        """The jobs to store when the scheduler starts; an app has none."""

    @property
    def timezone(self) -> tzinfo:
        """The zone in which times are read and shown."""
        return self._zone()

    def _id_of(self, job: Any) -> str:
        return job.id if isinstance(job, Job) else job

    def list(self, jobstore: str | None = None) -> _Jobs:
        """Return all jobs by next run time, paused ones last."""
        jobs = self.waiting(jobstore)
        for alias, store in self._chosen(jobstore).items():
            jobs += [self._bound(job, alias) for job in store.get_all_jobs()]
        return jobs

    def waiting(self, jobstore: str | None = None) -> _Jobs:
        """Return the jobs that wait for the scheduler to start."""
        return [item.job for item in list(self.pending) if jobstore in (None, item.alias)]

    def get(self, job: str | Job, jobstore: str | None = None) -> Job:
        """Return a job; raise JobLookupError, which suggests similar ids."""
        return self._find(self._id_of(job), jobstore)[0]

    @overload
    def preview(
        self, job: str | Job, n: int = 10, jobstore: str | None = None, *, notes: Literal[False] = False
    ) -> _Moments: ...

    @overload
    def preview(self, job: str | Job, n: int = 10, jobstore: str | None = None, *, notes: Literal[True]) -> _Fires: ...

    def preview(
        self, job: str | Job, n: int = 10, jobstore: str | None = None, *, notes: bool = False
    ) -> _Moments | _Fires:
        """Return a job's next `n` fire times, before jitter; with `notes`, also the effect of clock changes on each."""
        found, alias, _ = self._find(self._id_of(job), jobstore)
        fires = preview(found, self._now(alias), n, self.timezone)
        return fires if notes else [fire.at for fire in fires]

    def fires(
        self, since: datetime | None = None, until: datetime | timedelta = timedelta(days=1), limit: int = 100
    ) -> _Fires:
        """Return the fires of all jobs in order, from `since` (by default now) until a time or for a timedelta."""
        start, end = self._span(since, until)
        return fires_between(self.list(), start, end, limit, self.timezone)

    def _span(self, since: datetime | None, until: datetime | timedelta) -> tuple[int, int]:
        start = self._now("default") if since is None else self._instant(since, "since")
        end = start + int(until.total_seconds() * SECOND) if isinstance(until, timedelta) else None
        return start, self._instant(until, "until") if end is None else end

    def _instant(self, moment: Any, name: str) -> int:
        found = convert_to_datetime(moment, self.timezone, name)
        assert found is not None
        return to_us(found)

    def _find(self, job_id: str, jobstore: str | None) -> tuple[Job, str, JobStore | None]:
        """Return a job, the alias of its store, and the store; the store is None for a pending job."""
        for item in list(self.pending):
            if item.job.id == job_id and jobstore in (None, item.alias):
                return item.job, item.alias, None
        stores = self._chosen(jobstore)
        for alias, store in stores.items():
            job = store.lookup_job(job_id)
            if job is not None:
                return self._bound(job, alias), alias, store
        ids = [item.job.id for item in list(self.pending)]
        for store in stores.values():
            if store.stats().jobs <= SUGGEST_FROM_JOBS:
                ids += [job.id for job in store.get_all_jobs()]
        raise JobLookupError(job_id, tuple(ids))

    def _chosen(self, jobstore: str | None) -> Mapping[str, JobStore]:
        """Return one store or all, by alias; none before a scheduler starts."""
        stores = self._stores()
        if stores is None:
            return {}
        return dict(stores) if jobstore is None else {jobstore: self._known(jobstore, stores)}

    @abstractmethod
    def _bound(self, job: Job, alias: str) -> Job:
        """Return the job with its methods (`pause()`, `remove()`, ...) bound to this book."""

    def _known(self, alias: str, stores: Mapping[str, JobStore]) -> JobStore:
        store = stores.get(alias)
        if store is None:
            raise UnknownAlias("job store", alias, tuple(stores))
        return store
