"""Write a changed job so that no overdue fire is lost: it is kept, or recorded as missed in the same step."""

from __future__ import annotations

import logging

from mainspring.core.instants import from_us
from mainspring.core.job import Job
from mainspring.core.plan import passed_over
from mainspring.core.run import Run
from mainspring.errors import VersionConflict
from mainspring.jobstores.base import JobStore

__all__ = ["replace_job", "write_job"]

log = logging.getLogger("mainspring.scheduler")


def write_job(store: JobStore, job: Job, changed: Job, now: int) -> Run | None:
    """Replace the job that was read by `changed`; return the record of the overdue fires which that skips, if any.

    Raise VersionConflict if somebody else changed the job meanwhile.
    """
    step = passed_over(job, changed, now)
    if step is None:
        store.update_job(changed)
        return None
    if not store.fire_besides(step, 0):
        raise VersionConflict(job.id)
    record = step.missed[0]
    log.warning(
        "job %r was changed after it came due at %s; fires recorded as missed: %d",
        job.id,
        from_us(record.run_at),
        record.count,
    )
    return record


def replace_job(store: JobStore, job: Job, now: int, *, computed: bool) -> Run | None:
    """Store a job in place of the one that has its id, if there is one; return the record of fires that this skips.

    With `computed` nobody gave the job its next run time. Then it keeps an overdue fire of the same trigger.
    """
    while True:
        known = store.lookup_job(job.id)
        if known is None:
            store.add_jobs([job], replace=True)
            return None
        if computed and known.at is not None and known.at <= now and known.trigger == job.trigger:
            job.at, job.nominal = known.at, known.nominal
        job.version, job.incarnation = known.version, known.incarnation
        try:
            return write_job(store, known, job, now)
        except VersionConflict:
            continue
