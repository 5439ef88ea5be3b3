"""The errors of a tracker.

```
MainspringError
├── JobExecutionError
│   ├── JobLockedError                another worker holds the job, or has taken it over
│   ├── JobIsNotReadyToStartError     its status or its retry_at forbids a start
│   │   ├── JobAlreadySucceededError
│   │   └── JobIgnoredError           it has failed too often
│   └── JobUpdateError  (ValueError)  the body succeeded, but its updates cannot be stored
├── UnknownJobError     (ValueError, LookupError)
└── ColumnError         (KeyError)    `Updates.set` got an unknown column, or one that only the tracker sets
```
"""

from __future__ import annotations

from typing import Any

from mainspring.errors import MainspringError

__all__ = [
    "ColumnError",
    "JobAlreadySucceededError",
    "JobExecutionError",
    "JobIgnoredError",
    "JobIsNotReadyToStartError",
    "JobLockedError",
    "JobUpdateError",
    "UnknownJobError",
]


class JobExecutionError(MainspringError):
    """A job that cannot start, or whose end cannot be written."""

    def __init__(self, message: str = "", job_id: Any = None) -> None:
        super().__init__(message, job_id)
        self.message, self.job_id = message, job_id

    def __str__(self) -> str:
        return self.message


class JobLockedError(JobExecutionError):
    """Another worker holds the job's lock."""


class JobIsNotReadyToStartError(JobExecutionError):
    """The step cannot start a job in this status."""


class JobAlreadySucceededError(JobIsNotReadyToStartError):
    """The job has succeeded already."""


class JobIgnoredError(JobIsNotReadyToStartError):
    """The job has failed too often: the tracker leaves it alone until a person sends it back."""


class JobUpdateError(JobExecutionError, ValueError):
    """The values that the body set cannot be stored; the job is marked failed."""


class UnknownJobError(MainspringError, ValueError, LookupError):
    """The table has no job with this id."""

    def __init__(self, message: str, job_id: Any = None) -> None:
        super().__init__(message, job_id)
        self.message, self.job_id = message, job_id

    def __str__(self) -> str:
        return self.message


class ColumnError(MainspringError, KeyError):
    """A column that does not exist, or that belongs to the tracker."""

    def __str__(self) -> str:
        return str(self.args[0])
