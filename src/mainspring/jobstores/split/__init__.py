"""A store that keeps jobs in one store and their runs in another."""

from mainspring.jobstores.split.store import JobRecord, JobRecords, SplitJobStore

__all__ = ["JobRecord", "JobRecords", "SplitJobStore"]
