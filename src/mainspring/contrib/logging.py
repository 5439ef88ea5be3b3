"""Log records that name the run whose task wrote them: `handler.addFilter(RunContext())`."""

from __future__ import annotations

import logging

from mainspring.executors.current_run import CURRENT

__all__ = ["RunContext"]


class RunContext(logging.Filter):
    """Gives every record `run_id`, `task`, `job_id`, `queue` and `attempt`; outside of a run they are None.

    It belongs on a handler: a filter of a logger does not see the records of the loggers below it.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes; let every record pass."""
        if not hasattr(record, "run_id"):  # the records of `mainspring.runs` have them
            found = CURRENT.get()
            run = None if found is None else found[0]
            record.run_id = None if run is None else run.id
            record.task = None if run is None else run.call.task_name
            record.job_id = None if run is None else run.job_id
            record.queue = None if run is None else run.queue
            record.attempt = None if run is None else run.attempt
        return True
