"""APScheduler's verbs over a node: one module per front end."""

from mainspring.errors import SchedulerAlreadyRunningError, SchedulerNotRunningError

__all__ = ["SchedulerAlreadyRunningError", "SchedulerNotRunningError"]
