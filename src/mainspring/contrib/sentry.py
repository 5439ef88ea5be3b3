"""Report task errors to Sentry. Install the extra `sentry`; an entry point loads this module.

It reports to the client that your program sets up with `sentry_sdk.init(...)`, and sends nothing without one.
`monitor_jobs(app)` also reports job runs to Sentry's cron monitors, so that Sentry notices a missing run.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from uuid import NAMESPACE_OID, uuid5

from mainspring.core.run import Run
from mainspring.errors import Cancel, JobLookupError, Retry, install_command
from mainspring.executors.current_run import CurrentRun
from mainspring.locks import free_in_children
from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.cron import CronTrigger
from mainspring.triggers.interval import IntervalTrigger

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["monitor_jobs", "report"]

if find_spec("sentry_sdk") is None:  # so that the entry point is skipped; importing the package itself is slow
    raise ModuleNotFoundError(f"sentry_sdk is not installed: {install_command('sentry')}", name="sentry_sdk")

SLUG_CHARS: Final = 50
_UNITS: Final = (("day", 86400), ("hour", 3600), ("minute", 60))


def report(error: BaseException, run: CurrentRun | None) -> bool:
    """Send a task's exception to Sentry, with its run; return False if the program has not set Sentry up."""
    if isinstance(error, Retry | Cancel):
        return True  # a task raises Retry and Cancel as requests, not errors
    sentry_sdk = _client()
    if sentry_sdk is None:
        return False
    with sentry_sdk.new_scope() as scope:
        if run is not None:
            record = run.record
            scope.set_transaction_name(record.name, source="task")
            scope.set_tag("mainspring.queue", record.queue)
            scope.set_context("mainspring", {"run": record.id, "attempt": record.attempt, "job": record.job_id})
        sentry_sdk.capture_exception(error)
    return True


def _client() -> Any:
    """Return Sentry's module if the program has set it up, else None."""
    found: Any = sys.modules.get("sentry_sdk")  # a program that has set it up has imported it
    if found is None or not found.get_client().dsn:  # without an address, Sentry sends nothing
        return None
    _leave_out_reported()
    return found


@cache
def _leave_out_reported() -> None:
    """Keep Sentry from turning log lines into events when `report` has sent the same error in more detail."""
    import_module("sentry_sdk.integrations.logging").ignore_logger("mainspring.runs.reported")


def monitor_jobs(app: Mainspring, jobs: str | Iterable[str] = "*", **config: Any) -> None:
    """Send a check-in to Sentry's cron monitors when a job (ids or patterns) starts and when it ends.

    Sentry makes a monitor from the job's trigger if it can express it. `config` sets more of its fields, such as
    `checkin_margin` and `max_runtime`, both in minutes. A run that will be retried has not ended yet.
    """
    monitors = _Monitors(app, [jobs] if isinstance(jobs, str) else list(jobs), config)
    app.on("pre_execute", monitors.started)
    app.on("post_execute", monitors.ended)


class _Monitors:
    """A reporter of job runs to Sentry."""

    def __init__(self, app: Mainspring, patterns: list[str], config: dict[str, Any]) -> None:
        self._app, self._patterns, self._given = app, patterns, config
        self._configs: dict[str, dict[str, Any] | None] = {}
        self._lock = free_in_children(threading.Lock())

    def started(self, run: CurrentRun | None) -> None:
        """Report that a run has started."""
        if run is not None and self._wants(run.record) and run.attempt == 1:
            self._send(run.record, "in_progress")

    def ended(self, run: CurrentRun | None, value: Any, error: BaseException | None) -> None:
        """Report how a run has ended, unless it will be retried."""
        if run is None or not self._wants(run.record):
            return
        record = run.record
        if isinstance(error, Retry) or (error is not None and record.policy.wants_retry(record.failures + 1, error)):
            return
        self._send(record, "ok" if error is None or isinstance(error, Cancel) else "error")

    def _wants(self, run: Run) -> bool:
        return run.job_id is not None and any(fnmatchcase(run.job_id, pattern) for pattern in self._patterns)

    def _send(self, run: Run, status: str) -> None:
        job_id, sentry_sdk = str(run.job_id), _client()
        if sentry_sdk is None:
            return
        sentry_sdk.crons.capture_checkin(
            monitor_slug=_slug(job_id),
            check_in_id=uuid5(NAMESPACE_OID, run.id).hex,  # the same in every process that executes the run
            status=status,
            monitor_config=self._config(job_id),
        )

    def _config(self, job_id: str) -> dict[str, Any] | None:
        """Return the configuration of a job's monitor; None if Sentry cannot express its trigger."""
        with self._lock:
            if job_id not in self._configs:
                try:
                    schedule = _schedule(self._app.get_job(job_id).trigger)
                except JobLookupError:  # removed in the meantime
                    schedule = None
                self._configs[job_id] = None if schedule is None else {**schedule, **self._given}
            return self._configs[job_id]


def _slug(job_id: str) -> str:
    return re.sub(r"[^a-z0-9_-]+", "-", job_id.lower()).strip("-")[:SLUG_CHARS] or "job"


def _schedule(trigger: BaseTrigger) -> dict[str, Any] | None:
    if isinstance(trigger, IntervalTrigger):
        seconds = trigger.interval.total_seconds()
        for unit, length in _UNITS:
            if seconds % length == 0:
                return {"schedule": {"type": "interval", "value": int(seconds // length), "unit": unit}}
    if isinstance(trigger, CronTrigger):
        fields = {field.name: field for field in trigger.fields}
        plain = all(fields[name].is_default for name in ("year", "week")) and str(fields["second"]) == "0"
        words = [str(fields[name]) for name in ("minute", "hour", "day", "month", "day_of_week")]
        # Weekday numbers mean different days to Sentry, and it does not accept names such as "last fri".
        if plain and not re.search(r"\d", words[4]) and not re.search(r"[a-z]", "".join(words[:3])):
            return {"schedule": {"type": "crontab", "value": " ".join(words)}, "timezone": str(trigger.timezone)}
    return None
