"""Track the status of jobs in your own tables: who may start a job, who holds it, how it ended."""

from __future__ import annotations

from mainspring.errors import install_command

try:
    import sqlalchemy as _sqlalchemy  # noqa: F401
except ImportError as _error:
    raise ImportError(
        f"mainspring.tracker needs SQLAlchemy, which is not installed: {install_command('sqlalchemy')}"
    ) from _error

from mainspring.core.policy import Backoff
from mainspring.tracker.errors import (
    JobAlreadySucceededError,
    JobExecutionError,
    JobIgnoredError,
    JobIsNotReadyToStartError,
    JobLockedError,
    JobUpdateError,
    UnknownJobError,
)
from mainspring.tracker.mixin import BackoffMixin, JobMixin
from mainspring.tracker.rules import NAIVE_EPOCH
from mainspring.tracker.step import Tracker
from mainspring.tracker.updates import Updates
from mainspring.tracker.work import Work

__all__ = [
    "NAIVE_EPOCH",
    "Backoff",
    "BackoffMixin",
    "JobAlreadySucceededError",
    "JobExecutionError",
    "JobIgnoredError",
    "JobIsNotReadyToStartError",
    "JobLockedError",
    "JobMixin",
    "JobUpdateError",
    "Tracker",
    "UnknownJobError",
    "Updates",
    "Work",
]
