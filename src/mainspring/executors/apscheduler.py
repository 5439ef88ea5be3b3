"""Compatibility with APScheduler: its methods on our executors, and its executors under our contract."""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from mainspring.core.instants import from_us
from mainspring.core.references import iscoroutinefunction_partial, maybe_ref
from mainspring.core.run import Call, Report, Result, Run
from mainspring.errors import MaxInstancesReachedError
from mainspring.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_MISSED, JobExecutionEvent
from mainspring.executors.execution import Item, MayStart, Reporter, failed, record, starts, tell, trim
from mainspring.executors.forks import leave_if_forked

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LegacyJob", "LegacyVerbs", "run_coroutine_job", "run_job"]


@dataclass(frozen=True)
class LegacyJob:
    """A run in the shape of the job that an executor written for APScheduler expects."""

    id: str
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    name: str
    executor: str = "default"
    # The node has already checked lateness and overlap, so these values must not stop the run again.
    misfire_grace_time: float | None = None
    max_instances: int = sys.maxsize
    coalesce: bool = True
    trigger: Any = None
    next_run_time: datetime | None = None
    _jobstore_alias: str = field(default="default", repr=False)

    def __str__(self) -> str:
        return self.name or self.id


class LegacyVerbs:
    """APScheduler's methods: `submit_job` for callers of an executor, `_do_submit_job` and its replies for authors."""

    _scheduler: Any = None
    _lock: RLock | Any = None
    _logger = logging.getLogger("mainspring.executors")

    if TYPE_CHECKING:
        now: Callable[[], int]

        def submit(self, runs: Sequence[Run], report: Reporter, may_start: MayStart = ...) -> None: ...

    def submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
        """Execute a job once for each run time, and send its events to the scheduler.

        Raise MaxInstancesReachedError if the job already has as many unfinished submissions as it allows.
        """
        if self._lock is None:
            raise RuntimeError(f"{type(self).__name__} has not been started; call start(scheduler, alias) first")
        with self._lock:
            if len(self._unfinished(job.id)) >= job.max_instances:
                raise MaxInstancesReachedError(job.id, job.max_instances)
            self._hand_over(job, list(run_times), None)

    def _do_submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
        """Arrange a call of `run_job`, and then of `_run_job_success` or `_run_job_error`."""
        func = run_coroutine_job if iscoroutinefunction_partial(job.func) else run_job
        alias = getattr(job, "_jobstore_alias", None) or "default"
        call = Call(func, (job, alias, list(run_times), self._logger.name), {}, str(getattr(job, "name", job.id)))

        def answer(report: Report) -> None:
            if report.result is Result.RETURNED:
                self._run_job_success(job.id, report.value)
            else:
                error = report.exception or RuntimeError(f"the executor gave the job back: {report.result}")
                self._run_job_error(job.id, error, error.__traceback__)

        self.submit([Run(id=uuid4().hex, call=call, job_id=job.id, attempt=1)], answer)

    def _run_job_success(self, job_id: str, events: Sequence[JobExecutionEvent]) -> None:
        """Receive the events of a job that was executed."""
        item, known = self._finish(job_id)
        if item is not None:
            tell(item[1], self._report_of(item, events), self._logger)
        elif known:
            for event in events:
                self._scheduler._dispatch_event(event)

    def _run_job_error(self, job_id: str, exc: BaseException, traceback: TracebackType | None = None) -> None:
        """Receive the exception that prevented the execution of a job."""
        item, known = self._finish(job_id)
        if item is not None:
            if traceback is not None:
                exc = exc.with_traceback(traceback)
            tell(item[1], failed(item[0], exc, item[2], self.now()), self._logger)
        elif known:
            self._logger.error("job %s could not be run", job_id, exc_info=(type(exc), exc, traceback))

    def _submit_as_jobs(self, runs: Sequence[Run], report: Reporter, may_start: MayStart) -> None:
        if type(self)._do_submit_job is LegacyVerbs._do_submit_job:
            raise NotImplementedError(f"{type(self).__name__} must define submit() or _do_submit_job()")
        if self._lock is None:
            raise RuntimeError(f"{type(self).__name__} has not been started; call start(scheduler, alias) first")
        for run in runs:
            item = (run, report, self.now(), may_start)
            if not starts(item, self._logger):
                continue
            try:
                job = _job_of(run)
                with self._lock:
                    refused = self._hand_over(job, [from_us(run.due_at)], item)
            except BaseException as error:
                refused = error
            if refused is not None:
                tell(report, failed(run, refused, item[2], self.now()), self._logger)

    def _hand_over(self, job: Any, run_times: list[datetime], item: Item | None) -> BaseException | None:
        """Call `_do_submit_job`. Raise its error, or return it if the caller has to report it."""
        unfinished = self._unfinished(job.id)
        unfinished.append(item)
        try:
            self._do_submit_job(job, run_times)
        except BaseException as error:
            # The method may have replied before it raised: then the reply counts.
            answered = not any(one is item for one in unfinished)
            if not answered:
                unfinished.remove(item)
            if item is None:
                raise
            return None if answered else error
        return None

    def _unfinished(self, job_id: str) -> deque[Item | None]:
        jobs: dict[str, deque[Item | None]] = self.__dict__.setdefault("_jobs_in_flight", {})
        return jobs.setdefault(job_id, deque())

    def _finish(self, job_id: str) -> tuple[Item | None, bool]:
        """Remove and return the oldest unfinished submission of a job; None stands for one from `submit_job`."""
        with self._lock:
            unfinished = self._unfinished(job_id)
            known = bool(unfinished)
            item = unfinished.popleft() if known else None
            if not unfinished:
                del self.__dict__["_jobs_in_flight"][job_id]
        if not known:
            self._logger.warning("%s answered once too often for job %s", type(self).__name__, job_id)
        return item, known

    def _report_of(self, item: Item, events: Sequence[JobExecutionEvent]) -> Report:
        run, started = item[0], item[2]
        finished = self.now()
        event = events[-1] if events else None
        if event is None or event.code == EVENT_JOB_EXECUTED:
            value = None if event is None else event.retval
            return Report(run, Result.RETURNED, value, None, None, started, finished)
        if event.code == EVENT_JOB_MISSED:
            return Report(run, Result.LATE)
        error = event.exception or RuntimeError(f"{type(self).__name__} reported an error without an exception")
        report = failed(run, error, started, finished)
        if report.error is not None and error.__traceback__ is None and event.traceback:
            report.error = msgspec.structs.replace(report.error, traceback=str(event.traceback))
        return report


def _job_of(run: Run) -> LegacyJob:
    return LegacyJob(
        id=run.job_id or run.id,
        func=maybe_ref(run.call.func),
        args=run.call.args,
        kwargs=dict(run.call.kwargs),
        name=run.call.name or run.id,
        executor=run.executor or "default",
    )


def run_job(
    job: Any, jobstore_alias: str | None, run_times: Sequence[datetime], logger_name: str
) -> list[JobExecutionEvent]:
    """Call a job's function once for each run time that is within its grace, and return the events."""
    return _JobCalls(job, jobstore_alias, logging.getLogger(logger_name)).all(run_times)


async def run_coroutine_job(
    job: Any, jobstore_alias: str | None, run_times: Sequence[datetime], logger_name: str
) -> list[JobExecutionEvent]:
    """Await a job's coroutine function once for each run time that is within its grace, and return the events."""
    return await _JobCalls(job, jobstore_alias, logging.getLogger(logger_name)).all_awaited(run_times)


class _JobCalls:
    def __init__(self, job: Any, alias: str | None, logger: logging.Logger) -> None:
        self.job, self.alias, self.logger = job, alias, logger
        self.home = os.getpid()
        self.events: list[JobExecutionEvent] = []

    def all(self, run_times: Sequence[datetime]) -> list[JobExecutionEvent]:
        for run_time in run_times:
            if self.too_late(run_time):
                continue
            try:
                value = self.job.func(*self.job.args, **self.job.kwargs)
                if isinstance(value, Coroutine):
                    # Import asyncio only here: it takes 40 ms, and few jobs need it.
                    from mainspring.executors.cooperative.coroutines import run_alone

                    value = run_alone(value)
            except BaseException as error:
                leave_if_forked(self.home, error)
                self.raised(run_time, error)
            else:
                leave_if_forked(self.home)
                self.returned(run_time, value)
        return self.events

    async def all_awaited(self, run_times: Sequence[datetime]) -> list[JobExecutionEvent]:
        from asyncio import CancelledError

        for run_time in run_times:
            if self.too_late(run_time):
                continue
            try:
                value = await self.job.func(*self.job.args, **self.job.kwargs)
            except (CancelledError, GeneratorExit):
                raise  # the executor is stopping the coroutine
            except BaseException as error:
                leave_if_forked(self.home, error)
                self.raised(run_time, error)
            else:
                leave_if_forked(self.home)
                self.returned(run_time, value)
        return self.events

    def too_late(self, run_time: datetime) -> bool:
        grace = self.job.misfire_grace_time
        behind = datetime.now(UTC) - run_time
        if grace is None or behind <= timedelta(seconds=grace):
            self.logger.info("running job %s, due at %s", self.job, run_time)
            return False
        self.logger.warning("job %s missed its run time %s by %s", self.job, run_time, behind)
        self.add(EVENT_JOB_MISSED, run_time)
        return True

    def returned(self, run_time: datetime, value: Any) -> None:
        self.logger.info("job %s returned", self.job)
        self.add(EVENT_JOB_EXECUTED, run_time, retval=value)

    def raised(self, run_time: datetime, error: BaseException) -> None:
        trim(error)
        text = record(error, 0, 0).traceback
        self.logger.error("job %s raised %s", self.job, type(error).__name__, exc_info=error)
        self.add(EVENT_JOB_ERROR, run_time, exception=error, traceback=text)

    def add(self, code: int, run_time: datetime, **outcome: Any) -> None:
        self.events.append(JobExecutionEvent(code, self.job.id, self.alias, run_time, **outcome))
