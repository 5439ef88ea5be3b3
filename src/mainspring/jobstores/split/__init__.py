"""A store that keeps jobs in one store and their runs in another."""

from mainspring.jobstores.split.back_end import RecordsJobStore, resolve
from mainspring.jobstores.split.changes import ChangeSignal, WatchedRecords
from mainspring.jobstores.split.records import JobRecord, JobRecords, is_due, wake_of, wake_text
from mainspring.jobstores.split.store import SplitJobStore

__all__ = [
    "ChangeSignal",
    "JobRecord",
    "JobRecords",
    "RecordsJobStore",
    "SplitJobStore",
    "WatchedRecords",
    "is_due",
    "resolve",
    "wake_of",
    "wake_text",
]
