"""The events of schedulers and apps; the first seventeen codes are APScheduler's.

An event about a run carries the run's id, task and queue. APScheduler's codes also cover runs that were enqueued
directly: their `job_id` is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

EVENT_SCHEDULER_STARTED = EVENT_SCHEDULER_START = 2**0
EVENT_SCHEDULER_SHUTDOWN = 2**1
EVENT_SCHEDULER_PAUSED = 2**2
EVENT_SCHEDULER_RESUMED = 2**3
EVENT_EXECUTOR_ADDED = 2**4
EVENT_EXECUTOR_REMOVED = 2**5
EVENT_JOBSTORE_ADDED = 2**6
EVENT_JOBSTORE_REMOVED = 2**7
EVENT_ALL_JOBS_REMOVED = 2**8
EVENT_JOB_ADDED = 2**9
EVENT_JOB_REMOVED = 2**10
EVENT_JOB_MODIFIED = 2**11
EVENT_JOB_EXECUTED = 2**12
EVENT_JOB_ERROR = 2**13
EVENT_JOB_MISSED = 2**14
EVENT_JOB_SUBMITTED = 2**15
EVENT_JOB_MAX_INSTANCES = 2**16
# Ours: runs and nodes.
EVENT_RUN_LOST = 2**17
EVENT_RUN_RECOVERED = 2**18
EVENT_RUN_STUCK = 2**19
EVENT_JOB_BROKEN = 2**20
EVENT_STORE_DOWN = 2**21
EVENT_STORE_UP = 2**22
EVENT_RUN_RETRIED = 2**23
EVENT_RUN_STARTED = 2**24
EVENT_RUN_CANCELLED = 2**25
EVENT_RUN_BROKEN = 2**26
EVENT_JOB_HEALTH = 2**27
# APScheduler's codes under their names for runs.
EVENT_RUN_SUBMITTED = EVENT_JOB_SUBMITTED
EVENT_RUN_SUCCEEDED = EVENT_JOB_EXECUTED
EVENT_RUN_FAILED = EVENT_JOB_ERROR
EVENT_RUN_MISSED = EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES
EVENT_RUN_ENDED = EVENT_RUN_SUCCEEDED | EVENT_RUN_FAILED | EVENT_RUN_MISSED | EVENT_RUN_CANCELLED | EVENT_RUN_BROKEN

EVENT_ALL = 2**28 - 1

__all__ = [
    *(name for name in dir() if name.startswith("EVENT_")),
    "JobEvent",
    "JobExecutionEvent",
    "JobHealthEvent",
    "JobSubmissionEvent",
    "RunEvent",
    "SchedulerEvent",
]


class SchedulerEvent:
    """An event of the scheduler; `alias` names the store or executor concerned."""

    def __init__(self, code: int, alias: str | None = None) -> None:
        self.code = code
        self.alias = alias

    def __repr__(self) -> str:
        return f"<{type(self).__name__} (code={self.code})>"


class JobEvent(SchedulerEvent):
    """An event of a job, or of a run; the `job_id` of a run is None unless a job made it."""

    run_id: str | None = None
    task: str | None = None
    queue: str | None = None
    attempt: int = 0
    reason: str = ""

    def __init__(self, code: int, job_id: str | None, jobstore: str | None) -> None:
        super().__init__(code)
        self.job_id = job_id
        self.jobstore = jobstore

    def __repr__(self) -> str:
        names = ("job_id", "run_id", "task", "queue")
        told = "".join(f", {name}={value!r}" for name in names if (value := getattr(self, name)) is not None)
        return f"<{type(self).__name__} (code={self.code}{told})>"


class JobSubmissionEvent(JobEvent):
    """The event of fires that were submitted to the job's executor or refused, or of a run that was enqueued."""

    def __init__(
        self, code: int, job_id: str | None, jobstore: str | None, scheduled_run_times: Sequence[datetime]
    ) -> None:
        super().__init__(code, job_id, jobstore)
        self.scheduled_run_times = list(scheduled_run_times)


class JobExecutionEvent(JobEvent):
    """The event of a run that succeeded, failed or was missed."""

    def __init__(
        self,
        code: int,
        job_id: str | None,
        jobstore: str | None,
        scheduled_run_time: datetime,
        retval: Any = None,
        exception: BaseException | None = None,
        traceback: str | None = None,
    ) -> None:
        super().__init__(code, job_id, jobstore)
        self.scheduled_run_time = scheduled_run_time
        self.retval = retval
        self.exception = exception
        self.traceback = traceback


class JobHealthEvent(JobEvent):
    """A change of a job's health from `before` to `health` (`new`, `paused`, `up`, `late`, `down`), with a `reason`."""

    def __init__(self, code: int, job_id: str, jobstore: str | None, health: str, before: str | None) -> None:
        super().__init__(code, job_id, jobstore)
        self.health = health
        self.before = before


class RunEvent(JobEvent):
    """An event of a run for which APScheduler has no code."""

    run_id: str

    def __init__(
        self, code: int, run_id: str, jobstore: str | None, reason: str = "", *, job_id: str | None = None
    ) -> None:
        super().__init__(code, job_id, jobstore)
        self.alias = jobstore
        self.run_id = run_id
        self.reason = reason
