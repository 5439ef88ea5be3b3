"""Adapt a user's own job store, written for APScheduler, to the contract: eight methods, one node."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import Any, Final

from mainspring.core.instants import SECOND, from_us, to_us
from mainspring.core.job import Job
from mainspring.core.plan import Firing
from mainspring.jobstores.base import Answers, BaseJobStore, DuePage, JobList
from mainspring.jobstores.memory import MemoryJobStore

__all__ = ["LegacyJobStore"]

REPEAT_SECONDS: Final = 2.0
"""If the user's store did not take a write, repeat it after this many seconds."""

log = logging.getLogger("mainspring.jobstores")


class LegacyJobStore(MemoryJobStore):
    """Keeps the jobs in the user's store and their runs in memory.

    The memory store decides which fire counts. So several schedulers of this process may share it, but schedulers of
    other processes must not. A crash between a fire and the write to the user's store repeats the fire. If that write
    only fails, it is repeated, and the fire is not.
    """

    volatile = True
    keeps_objects = False

    def __init__(self, store: BaseJobStore) -> None:
        super().__init__()
        self._store = store
        self._unwritten: dict[str, int] = {}
        """The jobs whose last fire the user's store did not take, each with the time from which to write them again."""
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
        now = self.beat()
        for job in self._store.get_due_jobs(from_us(now))[:limit]:
            if self._unwritten.get(job.id, now + 1) <= now:
                self._write_back(job.id)
            else:
                self._follow(job)
        page = super().due(limit, hold)
        known, moment = page.next_at, self._store.get_next_run_time()
        page.next_at = None if moment is None else to_us(moment)
        if limit and not page.jobs and page.next_at is not None and page.next_at <= page.now:
            # The job is due, but another scheduler has read it, or its last fire is not written yet.
            later = page.now + int(hold * SECOND)
            page.next_at = later if known is None else min(known, later)
        return page

    def fire(self, firings: Sequence[Firing], lease: float) -> Answers[tuple[str, ...] | None]:
        """Fire in memory, then update the user's store."""
        answers = super().fire(firings, lease)
        for firing, answer in zip(firings, answers, strict=True):
            if answer is not None and firing.unscheduled:
                self._write(firing.job_id)
            elif answer is not None:
                self._write_back(firing.job_id)
        return answers

    def _write(self, job_id: str) -> None:
        """Write a job to the user's store as it is in memory; remove it if it is finished."""
        jobs = super().get_jobs([job_id]).jobs
        if jobs:
            self._store.update_job(jobs[0])
        else:
            self._store.remove_job(job_id)

    def _write_back(self, job_id: str) -> None:
        """Write a job after its fire. If that fails, the fire counts, and the write is repeated later."""
        try:
            self._write(job_id)
        except Exception:
            if job_id not in self._unwritten:
                log.exception("job %r has fired, but its store did not take that; trying again", job_id)
            self._unwritten[job_id] = self.beat() + int(REPEAT_SECONDS * SECOND)
        else:
            self._unwritten.pop(job_id, None)

    def _follow(self, job: Job) -> Job:
        """Copy the current job of the user's store into memory, and set its version and incarnation.

        If its last fire is not written yet, memory has the current job.
        """
        known = super().get_jobs([job.id]).jobs
        if job.id in self._unwritten:
            return known[0] if known else job
        if not known or known[0].at != job.at:
            super().add_jobs([job], replace=True)
        else:
            job.version, job.incarnation, job.nominal = known[0].version, known[0].incarnation, known[0].nominal
        return job
