"""Write all log lines about runs: how each ended, which are retried, which were missed and why.

`RunEvents` calls this module where it makes the events, so each run is logged once, on the node that executes it. An
INFO line that is not wanted costs one check of the log level per batch: see `RunLog.wanted`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from mainspring.core.insight.wording import brief, duration
from mainspring.core.instants import SECOND
from mainspring.core.plan import BEYOND_CATCH_UP, LATE, MAX_INSTANCES, PAUSED, RESCHEDULED, SUPERSEDED
from mainspring.core.run import Outcome, Report, Result, Run, Status
from mainspring.core.showing.failures import folded, place_of
from mainspring.core.showing.redaction import call_text
from mainspring.errors import Retry
from mainspring.executors.execution import is_reported

__all__ = ["RunLog"]

MESSAGE_CHARS_LOGGED: Final = 300
"""Cut an error's message or a reason to this length in a log line; `mainspring runs show` prints the rest."""

_REASONS: Final = {
    LATE: "it could not start within its grace time",
    MAX_INSTANCES: "max_instances reached, its last run has not ended",
    BEYOND_CATCH_UP: "only the latest overdue fires run",
    SUPERSEDED: "a later fire of its job took its place",
    RESCHEDULED: "its job was changed after it came due",
    PAUSED: "its job was paused after it came due",
}

log = logging.getLogger("mainspring.runs")
reported_log = logging.getLogger("mainspring.runs.reported")
"""The logger for failures that an error reporter already has; a reporter that also reads the log skips this logger."""


class RunLog:
    """Writes what happens to the runs of one app or scheduler to `mainspring.runs`."""

    def __init__(self, local: Callable[[int], datetime]) -> None:
        self._local = local
        self.each_run = True
        """Whether to log runs that end well, too; retries, failures and misses are always logged."""
        self.find: Callable[[str], Callable[..., Any] | None] = lambda task: None
        """Finds the function of a task, whose parameters say which arguments are secret."""

    @property
    def wanted(self) -> bool:
        """Whether runs that end well are logged at the current log level."""
        return self.each_run and log.isEnabledFor(logging.INFO)

    def settled(self, outcome: Outcome, report: Report | None) -> None:
        """Log the outcome of a run: its end, a retry, or an interruption."""
        run = outcome.run
        if run.status is not Status.PENDING:
            self.ended(run, report)
        elif report is None:
            return
        elif report.result is Result.RAISED:
            self._waits_again(run, report)
        elif report.result is Result.INTERRUPTED:
            self._write(logging.WARNING, run, "was interrupted and waits to be executed again")

    def ended(self, run: Run, report: Report | None = None) -> None:
        """Log that a run has ended."""
        status = run.status
        if status is Status.SUCCEEDED or status is Status.CANCELLED:
            if self.wanted:
                reason = f": {_line(run.reason)}" if run.reason and status is Status.CANCELLED else ""
                self._write(logging.INFO, run, f"{status}{_in_time(run)}{_at_attempt(run)}{reason}", _took(run))
        elif status is Status.FAILED:
            self._failed(run, report)
        elif status is Status.MISSED:
            self._missed(run)
        elif status is Status.BROKEN:
            self._write(logging.ERROR, run, f"is set aside as broken: {_line(run.reason or _last_error(run))}")

    def recovered(self, run: Run) -> None:
        """Log that a run was lost with its node, and its status now."""
        then = "and waits to be executed again" if run.status is Status.PENDING else f"and is {run.status}"
        self._write(logging.WARNING, run, f"was lost with its node {then}")

    def _failed(self, run: Run, report: Report | None) -> None:
        attempts = f" after {run.attempt} attempts" if run.attempt > 1 else ""
        error = run.errors[-1] if run.errors else None
        trace = "" if error is None else error.traceback
        place = f" at {place_of(trace)}" if trace and place_of(trace) else ""
        text = f"failed for good{attempts}{_in_time(run)}{place}: {_line(_last_error(run))}"
        logger = reported_log if report is not None and is_reported(report.exception) else log
        self._write(logging.ERROR, run, f"{text}\n{folded(trace).rstrip()}" if trace else text, _took(run), logger)

    def _waits_again(self, run: Run, report: Report) -> None:
        last = report.error
        message = "" if last is None else f": {_line(f'{last.type}: {last.message}' if last.message else last.type)}"
        soon = _length(run.run_at - (report.finished_at or run.run_at))
        if isinstance(report.exception, Retry) and not report.exception.counted:
            if self.wanted:
                self._write(logging.INFO, run, f"asked to run again in {soon}")
        elif run.failures == report.run.failures:  # a crash spends no retry
            again = "crashed its process; it is executed again, alone, and no retry is spent"
            self._write(logging.WARNING, run, f"{again}{message}")
        else:
            place = "" if last is None or not place_of(last.traceback) else f" at {place_of(last.traceback)}"
            retry = f"retry {run.failures} of {run.policy.retries} in {soon}"
            logger = reported_log if is_reported(report.exception) else log
            self._write(logging.WARNING, run, f"failed{place}; {retry}{message}", logger=logger)

    def _missed(self, run: Run) -> None:
        reason = _REASONS.get(run.reason or "") or _line(run.reason or "")
        if run.job_id is None:
            return self._write(logging.WARNING, run, f"missed its time: {reason}")
        # A job that fires every second into an unserved queue would fill the log: warn at fire 1, 2, 4, 8, ...
        is_known = run.reason == MAX_INSTANCES and run.count & (run.count - 1)
        level = logging.DEBUG if is_known else logging.WARNING
        if not log.isEnabledFor(level):
            return None
        moment = f"{self._local(run.last or run.run_at):%Y-%m-%d %H:%M:%S %Z}"
        fires = f" (fires missed in a row: {run.count})" if run.count > 1 else ""
        what = "was skipped at" if run.reason == MAX_INSTANCES else "missed its run time"
        text = f'job "{_line(run.name)}" ({run.job_id}) {what} {moment}: {reason}{fires}'
        return log.log(level, "%s", text, extra=_facts(run, None))

    def _write(self, level: int, run: Run, text: str, took: int | None = None, logger: logging.Logger = log) -> None:
        if logger.isEnabledFor(level):
            logger.log(level, "%s %s %s", self._call(run), run.id, text, extra=_facts(run, took))

    def _call(self, run: Run) -> str:
        func = run.call.func if callable(run.call.func) else self.find(run.call.task_name)
        return call_text(run.name or run.call.task_name, run.args, run.kwargs, func)


def _facts(run: Run, took: int | None) -> dict[str, Any]:
    """Return the attributes of a log record about its run, for filters and for JSON."""
    return {
        "run_id": run.id,
        "task": run.call.task_name,
        "job_id": run.job_id,
        "queue": run.queue,
        "attempt": run.attempt,
        "status": str(run.status),
        "took": None if took is None else took / SECOND,
    }


def _took(run: Run) -> int | None:
    if run.started_at is None or run.finished_at is None:
        return None
    return max(0, run.finished_at - run.started_at)


def _in_time(run: Run) -> str:
    took = _took(run)
    return "" if took is None else f" in {_length(took)}"


def _at_attempt(run: Run) -> str:
    return f" at attempt {run.attempt}" if run.attempt > 1 else ""


def _last_error(run: Run) -> str:
    if not run.errors:
        return run.reason or "no error is known"
    last = run.errors[-1]
    return f"{last.type}: {last.message}" if last.message else last.type


def _line(text: str) -> str:
    return brief(text, MESSAGE_CHARS_LOGGED)


def _length(us: int) -> str:
    """Return a length of time in words: `0.023 s`, `4.2 s`, `3 min 20 s`."""
    if us >= 60 * SECOND:
        return duration(us)
    digits = 3 if us >= 10 * SECOND else 2
    return f"{max(0, us) / SECOND:.{digits}g} s" if us >= 1000 or us <= 0 else "under 1 ms"
