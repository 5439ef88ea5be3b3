"""Report errors of tasks to Sentry: install it with the extra `sentry`; an entry point finds it.

It reports to the client that your app has set up with `sentry_sdk.init(...)`; without one nothing is sent.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from mainspring.errors import Cancel, Retry
from mainspring.executors.current_run import CurrentRun

__all__ = ["report"]

sentry_sdk: Any = import_module("sentry_sdk")  # typed or not, installed or not: it is the user's
_logging: Any = import_module("sentry_sdk.integrations.logging")

# Sentry also makes events of logged errors. This logger repeats what `report` has sent, with less detail.
_logging.ignore_logger("mainspring.runs.reported")


def report(error: BaseException, run: CurrentRun | None) -> None:
    """Send a task's exception to Sentry, with the run it comes from."""
    if isinstance(error, Retry | Cancel):
        return  # Retry and Cancel are requests of a task, not errors
    with sentry_sdk.new_scope() as scope:
        if run is not None:
            record = run.record
            scope.set_transaction_name(record.name, source="task")
            scope.set_tag("mainspring.queue", record.queue)
            scope.set_context("mainspring", {"run": record.id, "attempt": record.attempt, "job": record.job_id})
        sentry_sdk.capture_exception(error)
