"""Jobs in one store, their runs in another."""

from mainspring.jobstores.split.store import JobRecord, JobRecords, SplitJobStore

__all__ = ["JobRecord", "JobRecords", "SplitJobStore"]
