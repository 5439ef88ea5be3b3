"""Make every event about a run: submitted, started, ended, retried, lost, set aside.

The code that changes a run calls this module after the store has accepted the change. `run_log` writes the log lines.
Without a listener and a log, a call costs one look at a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, tzinfo
from typing import Final

from mainspring.core.instants import from_us
from mainspring.core.plan import MAX_INSTANCES
from mainspring.core.run import Outcome, Report, Result, Run, Status
from mainspring.events import (
    EVENT_JOB_BROKEN,
    EVENT_JOB_ERROR,
    EVENT_JOB_EXECUTED,
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_MISSED,
    EVENT_JOB_SUBMITTED,
    EVENT_RUN_BROKEN,
    EVENT_RUN_CANCELLED,
    EVENT_RUN_LOST,
    EVENT_RUN_RECOVERED,
    EVENT_RUN_RETRIED,
    JobEvent,
    JobExecutionEvent,
    JobSubmissionEvent,
    RunEvent,
    SchedulerEvent,
)
from mainspring.jobstores.counting import MetricSums
from mainspring.node.events.listeners import Listeners
from mainspring.node.events.run_log import RunLog

__all__ = ["RunEvents"]

_ENDS: Final = {
    Status.SUCCEEDED: EVENT_JOB_EXECUTED,
    Status.FAILED: EVENT_JOB_ERROR,
    Status.MISSED: EVENT_JOB_MISSED,
    Status.CANCELLED: EVENT_RUN_CANCELLED,
    Status.BROKEN: EVENT_RUN_BROKEN,
}


class RunEvents:
    """Publishes the events about the runs of one app or scheduler, in this process."""

    def __init__(
        self,
        listeners: Listeners | None = None,
        deliver: Callable[[SchedulerEvent], None] | None = None,
        zone: Callable[[], tzinfo | None] = lambda: None,
    ) -> None:
        self.listeners = listeners or Listeners()
        self._deliver = deliver or self.listeners.call
        self._zone = zone
        self.log = RunLog(self._local)
        self._sums: dict[str, MetricSums] = {}

    def share(self, others: RunEvents) -> None:
        """Publish to the listeners and the log of another `RunEvents` from now on."""
        self.listeners, self._deliver, self._zone = others.listeners, others._deliver, others._zone
        self.log = others.log

    def sums(self, alias: str) -> MetricSums:
        """Return the counters of this process about the runs of a store."""
        known = self._sums.get(alias)
        return self._sums.setdefault(alias, MetricSums()) if known is None else known

    def publish(self, event: SchedulerEvent) -> None:
        """Deliver an event to the listeners that want it."""
        if self.listeners.mask & event.code:
            self._deliver(event)

    def submitted(self, runs: Iterable[Run], alias: str) -> None:
        """Publish that runs were enqueued or fired."""
        if self.listeners.mask & EVENT_JOB_SUBMITTED:
            for run in runs:
                self._submitted(run, [run], alias)

    def fired(self, runs: Sequence[Run], alias: str) -> None:
        """Publish that a job came due: one event for all its overdue fires, and one for each of their hooks."""
        fires = [run for run in runs if run.job_id is not None]
        if fires and self.listeners.mask & EVENT_JOB_SUBMITTED:
            self._submitted(fires[0], fires, alias)
            self.submitted((run for run in runs if run.job_id is None), alias)

    def _submitted(self, run: Run, fires: Sequence[Run], alias: str) -> None:
        times = [self._local(each.due_at) for each in fires]
        self._deliver(_about(run, JobSubmissionEvent(EVENT_JOB_SUBMITTED, run.job_id, alias, times)))

    def settled(self, outcome: Outcome, alias: str, report: Report | None = None) -> None:
        """Publish and log the outcome of a run and its follow-ups; `report` is its executor's report."""
        self.log.settled(outcome, report)
        if self.listeners.mask:
            self._publish_settled(outcome, alias, report)

    def _publish_settled(self, outcome: Outcome, alias: str, report: Report | None) -> None:
        run = outcome.run
        if run.status is not Status.PENDING:
            self._publish_end(run, alias, report)
        elif report is not None and report.result is Result.RAISED:
            self.tell(EVENT_RUN_RETRIED, run, alias, "" if report.error is None else report.error.message)
        elif report is not None and report.result is Result.INTERRUPTED:
            self.tell(EVENT_RUN_LOST, run, alias, "the process that executed it is gone")
        self.submitted(outcome.then, alias)

    def ended(self, run: Run, alias: str, report: Report | None = None) -> None:
        """Publish and log that a run has ended."""
        self.log.ended(run, report)
        self._publish_end(run, alias, report)

    def _publish_end(self, run: Run, alias: str, report: Report | None) -> None:
        code = _ENDS[run.status]
        if code == EVENT_JOB_MISSED and run.reason == MAX_INSTANCES:
            code = EVENT_JOB_MAX_INSTANCES
        if not self.listeners.mask & code:
            return
        event: JobEvent
        when = self._local(run.due_at if run.last is None else run.last)
        if code == EVENT_JOB_MAX_INSTANCES:
            event = JobSubmissionEvent(code, run.job_id, alias, [when])
        elif code in (EVENT_RUN_CANCELLED, EVENT_RUN_BROKEN):
            event = RunEvent(code, run.id, alias, job_id=run.job_id)
        else:
            event = JobExecutionEvent(code, run.job_id, alias, when)
            if code == EVENT_JOB_EXECUTED and report is not None:
                event.retval = report.value
            elif code == EVENT_JOB_ERROR:
                last = run.errors[-1] if run.errors else None
                event.exception = None if report is None else report.exception
                event.traceback = None if last is None else last.traceback
        self._deliver(_about(run, event))

    def recovered(self, outcome: Outcome, alias: str) -> None:
        """Publish and log that a run was lost with its node; then publish its outcome."""
        self.log.recovered(outcome.run)
        self.tell(EVENT_RUN_LOST, outcome.run, alias, "its node is gone")
        if outcome.run.status is Status.PENDING:
            self.tell(EVENT_RUN_RECOVERED, outcome.run, alias)
        self._publish_settled(outcome, alias, None)

    def set_aside(self, alias: str, what: str, record_id: str, queue: str | None, reason: str) -> None:
        """Publish that the unreadable record of a job or a run was set aside; its task is unknown."""
        event: JobEvent
        if what == "job":
            event = JobEvent(EVENT_JOB_BROKEN, record_id, alias)
        else:
            event = RunEvent(EVENT_RUN_BROKEN, record_id, alias)
        event.queue, event.reason = queue, reason
        self.publish(event)

    def tell(self, code: int, run: Run, alias: str | None, reason: str = "") -> None:
        """Publish any other event about a run."""
        if self.listeners.mask & code:
            self._deliver(_about(run, RunEvent(code, run.id, alias, reason, job_id=run.job_id)))

    def _local(self, us: int) -> datetime:
        return from_us(us).astimezone(self._zone())


def _about(run: Run, event: JobEvent) -> JobEvent:
    """Put the id, task and queue of a run into an event."""
    event.run_id, event.task, event.queue, event.attempt = run.id, run.call.task_name, run.queue, run.attempt
    event.reason = event.reason or run.reason or ""
    return event
