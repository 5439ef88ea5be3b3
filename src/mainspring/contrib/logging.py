"""Log records that name the run that wrote them: `handler.addFilter(RunContext())`."""

from __future__ import annotations

import logging

from mainspring.executors.current_run import CURRENT

__all__ = ["RunContext"]


class RunContext(logging.Filter):
    """A filter that adds `run_id`, `task`, `job_id`, `queue` and `attempt` to records; outside a run they are None.

    Add it to a handler: a logger's filter does not see the records of its child loggers.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes, and let every record pass."""
        if not hasattr(record, "run_id"):  # records of `mainspring.runs` have the attributes already
            found = CURRENT.get()
            run = None if found is None else found[0]
            record.run_id = None if run is None else run.id
            record.task = None if run is None else run.call.task_name
            record.job_id = None if run is None else run.job_id
            record.queue = None if run is None else run.queue
            record.attempt = None if run is None else run.attempt
        return True
