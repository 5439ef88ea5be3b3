"""The errors of a tracker.

```
MainspringError
├── JobExecutionError
│   ├── JobLockedError                somebody else has the job, or has taken it over
│   ├── JobIsNotReadyToStartError     its status, or its retry_at, forbids to start it
│   │   ├── JobAlreadySucceededError
│   │   └── JobIgnoredError           it has failed too often
│   └── JobUpdateError  (ValueError)  the body succeeded, but its updates cannot be stored
├── UnknownJobError     (ValueError, LookupError)
└── ColumnError         (KeyError)    `Updates.set` was given a column that is not there or not the user's to set
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
    """A job cannot be started, or its end cannot be written."""

    def __init__(self, message: str = "", job_id: Any = None) -> None:
        super().__init__(message, job_id)
        self.message, self.job_id = message, job_id

    def __str__(self) -> str:
        return self.message


class JobLockedError(JobExecutionError):
    """Somebody else holds the job's lock."""


class JobIsNotReadyToStartError(JobExecutionError):
    """The job is in a status from which this step does not start."""


class JobAlreadySucceededError(JobIsNotReadyToStartError):
    """The job has succeeded already."""


class JobIgnoredError(JobIsNotReadyToStartError):
    """The job has failed too often, and is left alone until a person sends it back."""


class JobUpdateError(JobExecutionError, ValueError):
    """The values that the body has set cannot be stored; the job is marked failed."""


class UnknownJobError(MainspringError, ValueError, LookupError):
    """The table has no job of this id."""

    def __init__(self, message: str, job_id: Any = None) -> None:
        super().__init__(message, job_id)
        self.message, self.job_id = message, job_id

    def __str__(self) -> str:
        return self.message


class ColumnError(MainspringError, KeyError):
    """A column that is not there, or that belongs to the tracker."""

    def __str__(self) -> str:
        return str(self.args[0])
