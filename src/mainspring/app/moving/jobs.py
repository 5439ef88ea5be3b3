"""Move a job: hold it at the source, add it to the target held, remove it from the source, let it go at the target.

Before the hold, only the source can fire the job; after it is let go, only the target; in between, neither. A move that
continues an interrupted one finds the held copies at the target. The job at the source, or its absence, tells the next
step.
"""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.app.moving.marks import ARRIVING_AT, LEAVING_AT, arriving_job
from mainspring.core.job import Job
from mainspring.errors import ConflictingIdError, JobLookupError, VersionConflict
from mainspring.jobstores.base import JobStore

__all__ = ["JobMover"]


class JobMover:
    """Moves jobs from a source to a target."""

    def __init__(self, source: JobStore, target: JobStore) -> None:
        self._source, self._target = source, target

    def taken(self, jobs: Iterable[Job]) -> list[str]:
        """Return the ids of jobs that the target has, except for copies of an earlier move and equal schedules."""
        there = {job.id: job for job in self._target.examine_jobs()[0]}
        return [job.id for job in jobs if job.id in there and not _may_replace(there[job.id], job)]

    def finish(self) -> int:
        """Let go of the copies whose jobs an earlier move has removed from the source; return how many."""
        held = [job for job in self._target.examine_jobs()[0] if job.at == ARRIVING_AT]
        here = {job.id for job in self._source.get_jobs([job.id for job in held]).jobs} if held else set()
        return sum(self._let_go(job.id) for job in held if job.id not in here)

    def move(self, job: Job) -> bool:
        """Move a job; return False if it no longer exists."""
        while True:
            held = self._hold(job.id)
            if held is None:
                return False
            try:
                self._copy(held)
            except ConflictingIdError:
                self._give_back(held)
                raise
            now = self._source.lookup_job(job.id)
            if now is None or now.version == held.version:
                break  # otherwise the job was changed meanwhile: copy it again
        self._source.remove_jobs([job.id])
        return self._let_go(job.id)

    def _hold(self, job_id: str) -> Job | None:
        """Hold a job so that it does not come due, and keep its time as the nominal one; return None if it is gone."""
        while True:
            known = self._source.lookup_job(job_id)
            if known is None or known.at == LEAVING_AT:
                return known
            held = known.copy()
            held.at, held.nominal = LEAVING_AT, None if known.at is None else known.nominal
            try:
                self._source.update_job(held)
            except VersionConflict:  # it has just fired or was changed
                continue
            except JobLookupError:  # that was its last fire
                return None
            return held

    def _copy(self, held: Job) -> None:
        while True:
            copy, there = arriving_job(held), self._target.lookup_job(held.id)
            if there is None:
                return self._target.add_job(copy)
            if not _may_replace(there, held):
                raise ConflictingIdError(held.id)
            copy.version = there.version
            if copy.nominal is not None and there.nominal is not None:
                copy.nominal = max(copy.nominal, there.nominal)  # the target has already fired the earlier times
            try:
                return self._target.update_job(copy)
            except (VersionConflict, JobLookupError):  # the target has just fired it
                continue

    def _give_back(self, held: Job) -> None:
        """Let a job fire at the source again."""
        own = held.copy()
        own.at = held.nominal
        self._source.update_job(own)

    def _let_go(self, job_id: str) -> bool:
        while True:
            copy = self._target.lookup_job(job_id)
            if copy is None or copy.at != ARRIVING_AT:
                return copy is not None
            copy.at = copy.nominal
            try:
                self._target.update_job(copy)
            except VersionConflict:
                continue
            return True


def _may_replace(there: Job, job: Job) -> bool:
    """Return True if the target's job is a copy of an earlier move, or the schedule that the same code declares."""
    return there.at == ARRIVING_AT or (there.declared is not None and there.declared == job.declared)
