"""Adapt a user's own job store, written for APScheduler, to the contract: eight methods, one node."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import Any

from mainspring.core.instants import SECOND, from_us, to_us
from mainspring.core.job import Job
from mainspring.core.plan import Firing
from mainspring.jobstores.base import Answers, BaseJobStore, DuePage, JobList
from mainspring.jobstores.memory import MemoryJobStore

__all__ = ["LegacyJobStore"]

log = logging.getLogger("mainspring.jobstores")


class LegacyJobStore(MemoryJobStore):
    """Keeps the jobs in the user's store and their runs in memory.

    The memory store decides which fire counts. So several schedulers of this process may share it, but schedulers of
    other processes must not. A crash between a fire and the write to the user's store repeats the fire.
    """

    volatile = True
    keeps_objects = False

    def __init__(self, store: BaseJobStore) -> None:
        super().__init__()
        self._store = store
        warnings.warn(
            f"{type(store).__name__} has APScheduler's eight methods only: use it from one process,"
            " and expect its runs to be forgotten when the process ends",
            RuntimeWarning,
            stacklevel=4,
        )

    def start(self, scheduler: Any, alias: str) -> None:
        """Open the user's store."""
        super().start(scheduler, alias)
        self._store.start(scheduler, alias)

    def shutdown(self) -> None:
        """Close the user's store."""
        self._store.shutdown()
        super().shutdown()

    def get_jobs(self, job_ids: Sequence[str] | None = None, *, broken: bool = False) -> JobList:
        """Return jobs of the user's store."""
        if broken:
            return super().get_jobs(job_ids, broken=True)
        found = self._store.get_all_jobs() if job_ids is None else map(self._store.lookup_job, dict.fromkeys(job_ids))
        return JobList(jobs=[self._follow(job) for job in found if job is not None])

    def add_jobs(self, jobs: Sequence[Job], *, replace: bool = False) -> None:
        """Add jobs to the user's store, one by one."""
        for job in jobs:
            if replace and self._store.lookup_job(job.id) is not None:
                self._store.update_job(job)
            else:
                self._store.add_job(job)
            super().add_jobs([job], replace=True)

    def update_job(self, job: Job) -> None:
        """Replace a job."""
        super().update_job(job)
        self._store.update_job(job)

    def remove_jobs(self, job_ids: Sequence[str] | None = None, *, broken: bool = False) -> int:
        """Remove jobs from the user's store and from memory."""
        if broken:
            return super().remove_jobs(job_ids, broken=True)
        known = self.get_jobs(job_ids).jobs
        if job_ids is None:
            self._store.remove_all_jobs()
        else:
            for job in known:
                self._store.remove_job(job.id)
        super().remove_jobs(job_ids)
        return len(known)

    def due(self, limit: int, hold: float) -> DuePage:
        """Return the jobs that are due in the user's store."""
        for job in self._store.get_due_jobs(from_us(self.beat()))[:limit]:
            self._follow(job)
        page = super().due(limit, hold)
        moment = self._store.get_next_run_time()
        page.next_at = None if moment is None else to_us(moment)
        if limit and not page.jobs and page.next_at is not None and page.next_at <= page.now:
            page.next_at = page.now + int(hold * SECOND)  # the job is due, but another scheduler has read it
        return page

    def fire(self, firings: Sequence[Firing], lease: float) -> Answers[tuple[str, ...] | None]:
        """Fire in memory, then update the user's store."""
        answers = super().fire(firings, lease)
        for firing, answer in zip(firings, answers, strict=True):
            if answer is None:
                continue
            if firing.next_at is None and not firing.unscheduled:
                self._store.remove_job(firing.job_id)
                continue
            for job in super().get_jobs([firing.job_id]).jobs:
                self._store.update_job(job)
        return answers

    def _follow(self, job: Job) -> Job:
        """Copy the current job of the user's store into memory, and set its version and incarnation."""
        known = super().get_jobs([job.id]).jobs
        if not known or known[0].at != job.at:
            super().add_jobs([job], replace=True)
        else:
            job.version, job.incarnation, job.nominal = known[0].version, known[0].incarnation, known[0].nominal
        return job
