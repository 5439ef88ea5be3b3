"""A scheduler's job verbs, under APScheduler's names. `base` holds start and stop, stores and executors."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta, tzinfo
from functools import partial
from typing import Any, TextIO, TypeVar

from mainspring import events
from mainspring.clock import Clock
from mainspring.core.job import Job
from mainspring.core.policy import Policy
from mainspring.core.run import Call, Run, Status
from mainspring.core.showing.run_view import RunPage, RunView
from mainspring.core.validation import make_call, make_policy
from mainspring.errors import JobLookupError, UnknownAlias
from mainspring.events import SchedulerEvent
from mainspring.executors.base import BaseExecutor
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.finding import instant_of, make_query, newest
from mainspring.node.events.listeners import Listeners
from mainspring.node.events.run_events import RunEvents
from mainspring.node.jobs.book import JOB_OPTIONS, JobBook, PastFires
from mainspring.node.node import Node
from mainspring.triggers.base import BaseTrigger
from mainspring.util import undefined

__all__ = ["SchedulerJobs", "SchedulerVerbs"]

F = TypeVar("F", bound=Callable[..., Any])


class SchedulerJobs(JobBook):
    """The job book of a scheduler, over all its stores."""

    fields = JobBook.fields | {"executor"}
    options = JOB_OPTIONS | {"jobstore", "executor"}
    reads_crontab = False  # APScheduler refuses a crontab string, too

    def __init__(self, scheduler: SchedulerVerbs) -> None:
        super().__init__(
            lambda: None if scheduler._node is None else scheduler._jobstores,
            scheduler._now,
            scheduler._wake_for,
            scheduler._describe,
            zone=lambda: scheduler.timezone,
            random=lambda: scheduler._clock.random(),
            events=scheduler._run_events,
            lock=scheduler._lock,
        )
        self._scheduler = scheduler

    def current_run_time(self, job: Job) -> int | None:
        """Return the job's stored next run time if it is cheap to read, else the one in the job object."""
        alias, stores = job._jobstore_alias, self._scheduler._jobstores
        store = None if alias is None else stores.get(alias)
        if store is None or not store.keeps_objects:
            return job.at
        current = store.lookup_job(job.id)
        return job.at if current is None else current.at

    def _store(self, job: Job, alias: str, store: JobStore, replace: bool) -> None:
        self._check_executor(job, store)
        super()._store(job, alias, store, replace)

    def _check_executor(self, job: Job, store: JobStore) -> None:
        """Raise if no executor has this alias here and no other process can have it."""
        executors = self._scheduler._executors
        if job.executor in executors or job.executor == "queue" or not store.volatile:
            return
        if not any(f".{job.executor}" in node.queues for node in store.nodes()):
            raise UnknownAlias("executor", job.executor, (*executors, "queue"))


class SchedulerVerbs:
    """The job verbs of a scheduler. Added jobs are pending until it starts; then its stores hold them."""

    timezone: tzinfo
    _lock: threading.RLock
    _logger: logging.Logger
    _listeners: Listeners
    _run_events: RunEvents
    _clock: Clock
    _lease: float
    _node: Node | None
    _executors: dict[str, BaseExecutor]
    _jobstores: dict[str, JobStore]
    _book: SchedulerJobs
    _defaults: dict[str, Any]
    _default_policy: Policy

    def wakeup(self) -> None:
        """Make the scheduler check its stores now."""
        if self._node is not None:
            self._node.wake()

    def _dispatch_event(self, event: SchedulerEvent) -> None:
        if self._listeners.mask & event.code:
            self._deliver(event)

    def _deliver(self, event: SchedulerEvent) -> None:
        """Call the listeners. A front end for an event loop overrides this to call them on the loop."""
        self._listeners.call(event)

    @staticmethod
    def _known(kind: str, alias: str, known: Mapping[str, Any]) -> str:
        if alias not in known:
            raise UnknownAlias(kind, alias, tuple(known))
        return alias

    def _now(self, alias: str) -> int:
        node = self._node
        link = node.links.get(alias) if node is not None else None
        return self._clock.now() if link is None else link.now()

    def _wake_for(self, alias: str, at: int | None) -> None:
        if self._node is not None:
            self._node.wake_for(alias, at)

    def _describe(
        self, func: Any, args: Any, kwargs: Any, name: str | None, policy: dict[str, Any]
    ) -> tuple[Call, Policy, dict[str, Any]]:
        base = self._default_policy
        made = make_policy(base, **policy) if policy else base
        return make_call(func, args, kwargs, name), made, self._defaults.copy()

    def add_job(
        self,
        func: Callable[..., Any] | str,
        trigger: BaseTrigger | str | None = None,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        name: str | None = None,
        misfire_grace_time: Any = undefined,
        coalesce: Any = undefined,
        max_instances: Any = undefined,
        next_run_time: Any = undefined,
        jobstore: str = "default",
        executor: Any = undefined,
        replace_existing: bool = False,
        *,
        queue: Any = undefined,
        shard: str | None = None,
        **trigger_args: Any,
    ) -> Job:
        """Add a job. Without a trigger it runs once, now. `shard` pins the job to a shard: its id becomes `{shard}id`.

        Besides the trigger's arguments, `trigger_args` accepts the run policy: `timeout`, `retries`, `backoff`,
        `retry_on`, `give_up_on`, `retention`, `priority`, `delivery`.
        """
        options = {
            "args": args,
            "kwargs": kwargs,
            "name": name,
            "misfire_grace_time": misfire_grace_time,
            "coalesce": coalesce,
            "max_instances": max_instances,
            "next_run_time": next_run_time,
            "executor": executor,
            "queue": queue,
            "shard": shard,
            **trigger_args,
        }
        job = self._book.make(func, trigger, id, options, jobstore=jobstore)
        return self._book.put(job, jobstore, replace_existing)

    def scheduled_job(
        self,
        trigger: BaseTrigger | str | None,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        name: str | None = None,
        misfire_grace_time: Any = undefined,
        coalesce: Any = undefined,
        max_instances: Any = undefined,
        next_run_time: Any = undefined,
        jobstore: str = "default",
        executor: Any = undefined,
        **options: Any,
    ) -> Callable[[F], F]:
        """Decorate a function to add it as a job; it replaces an existing job with the same id."""

        def decorate(func: F) -> F:
            self.add_job(
                func,
                trigger,
                args,
                kwargs,
                id,
                name,
                misfire_grace_time,
                coalesce,
                max_instances,
                next_run_time,
                jobstore,
                executor,
                replace_existing=True,
                **options,
            )
            return func

        return decorate

    def modify_job(self, job_id: str, jobstore: str | None = None, **changes: Any) -> Job:
        """Change attributes of a job."""
        return self._book.modify(job_id, jobstore, **changes)

    def reschedule_job(
        self, job_id: str, jobstore: str | None = None, trigger: BaseTrigger | str | None = None, **trigger_args: Any
    ) -> Job:
        """Replace a job's trigger; compute its next run time from now."""
        return self._book.reschedule(job_id, trigger, jobstore, **trigger_args)

    def pause_job(self, job_id: str, jobstore: str | None = None) -> Job:
        """Keep a job from firing until `resume_job`."""
        return self._book.pause(job_id, jobstore)

    def resume_job(self, job_id: str, jobstore: str | None = None) -> Job | None:
        """Let a job fire again from now on; if it has no fire time left, remove it and return None."""
        return self._book.resume(job_id, jobstore)

    def skip_next(self, job: str | Job, jobstore: str | None = None) -> Job:
        """Skip a job's next fire."""
        return self._book.skip_next(job, jobstore)

    def run_now(self, job: str | Job, jobstore: str | None = None) -> RunView:
        """Run a job at once, in addition to its schedule; raise MaxInstancesReachedError above `max_instances`."""
        return RunView(self._book.fire_now(job, jobstore, lease=self._lease), self.timezone)

    def backfill(
        self,
        job: str | Job,
        since: datetime,
        until: datetime | None = None,
        jobstore: str | None = None,
        *,
        trial: bool = False,
    ) -> PastFires:
        """Run a job's past fires between two times that have no run yet, oldest first; with `trial`, only list them."""
        return self._book.run_past(job, jobstore, since, until, self._lease, trial=trial)

    def preview(self, job: str | Job, n: int = 10, jobstore: str | None = None) -> list[datetime]:
        """Return a job's next `n` fire times, before jitter."""
        return self._book.preview(job, n, jobstore)

    def get_jobs(self, jobstore: str | None = None, pending: bool | None = None) -> list[Job]:
        """Return the jobs of one store, or of all stores, by next run time; include pending ones."""
        return self._book.waiting(jobstore) if pending is True else self._book.list(jobstore)

    def get_job(self, job_id: str, jobstore: str | None = None) -> Job | None:
        """Return a job, or None if there is none with this id."""
        try:
            return self._book.get(job_id, jobstore)
        except JobLookupError:
            return None

    def remove_job(self, job_id: str, jobstore: str | None = None) -> None:
        """Remove a job; its existing runs continue."""
        self._book.remove(job_id, jobstore)

    def remove_all_jobs(self, jobstore: str | None = None) -> None:
        """Remove all jobs of a store, or of all stores."""
        self._book.clear(jobstore)
        self._dispatch_event(SchedulerEvent(events.EVENT_ALL_JOBS_REMOVED, jobstore))

    def get_runs(
        self,
        job_id: str | None = None,
        jobstore: str | None = None,
        status: Status | str | Iterable[Status | str] = (),
        limit: int = 100,
        *,
        since: datetime | timedelta | None = None,
    ) -> RunPage:
        """Return runs, newest first: those of one job, of one store, with one status, or all.

        `since` is a datetime, or a timedelta back from now. The result's `.more` is True if more than `limit` match.
        """
        query = make_query(status, job=job_id)
        with self._lock:
            stores = dict(self._jobstores)
        if jobstore is not None:
            stores = {jobstore: stores[self._known("job store", jobstore, stores)]}
        runs: list[Run] = []
        for alias, store in stores.items():
            oldest = None if since is None else instant_of(since, partial(self._now, alias), lambda: self.timezone)
            runs += newest(store, query, limit + 1, None, None, oldest)
        return RunPage.of(sorted(runs, key=lambda run: run.created_at, reverse=True), limit, lambda: self.timezone)

    def print_jobs(self, jobstore: str | None = None, out: TextIO | None = None) -> None:
        """Print the jobs of one store or of all stores."""
        waiting = self._book.waiting(jobstore)
        sections = [("Pending jobs", waiting)] if waiting or self._node is None else []
        for alias in sorted(self._jobstores) if self._node is not None else ():
            if jobstore in (None, alias):
                stored = [job for job in self._book.list(alias) if not job.pending]
                sections.append((f"Jobstore {alias}", stored))
        from mainspring.schedulers import portable  # imported late: it imports json

        portable.print_jobs(sections, out or sys.stdout)

    def export_jobs(self, outfile: Any, jobstore: str | None = None) -> None:
        """Write the jobs as JSON to a file or path."""
        from mainspring.schedulers import portable

        portable.export_jobs(self.get_jobs(jobstore), outfile)

    def import_jobs(self, infile: Any, jobstore: str = "default") -> None:
        """Add the jobs from a file that export_jobs wrote; each replaces a stored job with the same id."""
        from mainspring.schedulers import portable

        for job in portable.import_jobs(infile):
            self._book.put(job, jobstore, True)
        self.wakeup()
