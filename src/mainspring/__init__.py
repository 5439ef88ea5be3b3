"""mainspring schedules, queues, runs and tracks jobs."""

__version__ = "0.1.0"
