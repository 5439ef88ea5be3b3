"""The verbs about jobs: add, change, find, remove, export. Life, stores and executors are in `base`."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta, tzinfo
from functools import partial
from typing import Any, Final, NamedTuple, TextIO, TypeVar

from mainspring import events
from mainspring.clock import Clock
from mainspring.core.ids import check_id, pin
from mainspring.core.instants import SECOND
from mainspring.core.job import Job
from mainspring.core.policy import Policy
from mainspring.core.run import Run, Status
from mainspring.core.run_view import RunPage
from mainspring.core.validation import POLICY_FIELDS, check_field, make_call, make_policy
from mainspring.errors import JobLookupError, UnknownAlias, VersionConflict, near
from mainspring.events import JobEvent, SchedulerEvent
from mainspring.executors.base import BaseExecutor
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.changing import replace_job, write_job
from mainspring.jobstores.finding import instant_of, make_query, newest
from mainspring.node.listeners import Listeners
from mainspring.node.new_ids import new_job_id
from mainspring.node.node import Node
from mainspring.node.run_events import RunEvents
from mainspring.plugins import check_options, trigger_factory
from mainspring.triggers.base import BaseTrigger
from mainspring.util import convert_to_datetime, undefined

__all__ = ["JobVerbs", "PendingJob"]

F = TypeVar("F", bound=Callable[..., Any])


_ADD_JOB_OPTIONS: Final = (POLICY_FIELDS - {"then", "collect"}) | {
    *("args", "kwargs", "id", "name", "misfire_grace_time", "coalesce", "max_instances", "next_run_time"),
    *("jobstore", "executor", "queue", "shard", "replace_existing"),
}
"""Names that people try for an argument that neither `add_job` nor the trigger takes."""


class PendingJob(NamedTuple):
    """A job that is about to be stored: where, and whether it may replace another."""

    job: Job
    alias: str
    replace: bool


class JobVerbs:
    """What a scheduler can do with jobs; before it starts they are pending, then they are in its stores."""

    timezone: tzinfo
    _lock: threading.RLock
    _logger: logging.Logger
    _listeners: Listeners
    _run_events: RunEvents
    _clock: Clock
    _node: Node | None
    _executors: dict[str, BaseExecutor]
    _jobstores: dict[str, JobStore]
    _pending: list[PendingJob]
    _defaults: dict[str, Any]
    _default_policy: Policy

    def wakeup(self) -> None:
        """Have the scheduler look at its stores now."""
        if self._node is not None:
            self._node.wake()

    def _dispatch_event(self, event: SchedulerEvent) -> None:
        if self._listeners.mask & event.code:
            self._deliver(event)

    def _deliver(self, event: SchedulerEvent) -> None:
        """Call the listeners; an event-loop front end does it on its loop."""
        self._listeners.call(event)

    @staticmethod
    def _known(kind: str, alias: str, known: Mapping[str, Any]) -> str:
        if alias not in known:
            raise UnknownAlias(kind, alias, tuple(known))
        return alias

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
        """Add a job; without a trigger it runs once, now. `shard` pins it: its id becomes `{shard}id`.

        Besides the trigger's own arguments, `trigger_args` takes the run policy: `timeout`, `retries`, `backoff`,
        `retry_on`, `give_up_on`, `retention`, `priority`, `delivery`.
        """
        policy = self._default_policy
        if trigger_args and not POLICY_FIELDS.isdisjoint(trigger_args):
            own = {field: trigger_args.pop(field) for field in POLICY_FIELDS & trigger_args.keys()}
            policy = make_policy(policy, **own)
        defaults = self._defaults
        job_id = new_job_id() if id is None else check_id(id)
        job = Job(
            job_id if shard is None else check_id(pin(shard, job_id)),
            make_call(func, args, kwargs, name),
            self._create_trigger(trigger, trigger_args, self._now(jobstore)),
            executor=defaults["executor"] if executor is undefined else check_field("executor", executor),
            queue=defaults["queue"] if queue is undefined else check_field("queue", queue),
            misfire_grace_time=defaults["misfire_grace_time"]
            if misfire_grace_time is undefined
            else check_field("misfire_grace_time", misfire_grace_time),
            coalesce=defaults["coalesce"] if coalesce is undefined else check_field("coalesce", coalesce),
            max_instances=defaults["max_instances"]
            if max_instances is undefined
            else check_field("max_instances", max_instances),
            policy=policy,
        )
        job._scheduler = self
        if next_run_time is not undefined:
            job.next_run_time = convert_to_datetime(next_run_time, self.timezone, "next_run_time")
        node = self._node
        if node is None:
            with self._lock:
                node = self._node
                if node is None:
                    self._pending.append(PendingJob(job, jobstore, replace_existing))
                    return job
        self._store(job, jobstore, replace_existing)
        node.wake_for(jobstore, job.at)
        return job

    def _create_trigger(self, trigger: BaseTrigger | str | None, options: dict[str, Any], now: int) -> BaseTrigger:
        if trigger is None:
            trigger = "date"
        elif not isinstance(trigger, str):
            if not isinstance(trigger, BaseTrigger):
                raise TypeError(f"trigger must be a trigger object or the name of one, not {trigger!r}")
            if options:
                option = next(iter(options))
                problem = f"{option!r} is no argument of add_job, and the trigger is made already"
                raise TypeError(problem + near(option, _ADD_JOB_OPTIONS))
            return trigger
        factory, zoned, dated = trigger_factory(trigger)
        if zoned and "timezone" not in options:
            options["timezone"] = self.timezone
        if dated:
            options.setdefault("made_at", now)
        try:
            return factory(**options)  # type: ignore[no-any-return]
        except TypeError:
            # Says which argument is wrong, if one is.
            check_options("trigger", trigger, factory, options, _ADD_JOB_OPTIONS)
            raise

    def _store(self, job: Job, alias: str, replace: bool) -> None:
        """Put a new job into its store."""
        store = self._jobstores.get(alias)
        if store is None:
            raise UnknownAlias("job store", alias, tuple(self._jobstores))
        if job.executor not in self._executors:
            self._check_executor(job, store)
        now, computed, missed = self._now(alias), not job.timed, None
        if computed:
            self._time(job, now)
        job._jobstore_alias = alias
        try:
            if replace:
                missed = replace_job(store, job, now, computed=computed)
            else:
                store.add_job(job)
        except BaseException:
            job._jobstore_alias = None
            raise
        self._tell_missed(missed, alias)
        if self._logger.isEnabledFor(logging.INFO):
            self._logger.info('added job "%s" (%s) to the job store %r', job.name, job.id, alias)
        if self._listeners.mask & events.EVENT_JOB_ADDED:
            self._dispatch_event(JobEvent(events.EVENT_JOB_ADDED, job.id, alias))

    def _tell_missed(self, record: Run | None, alias: str) -> None:
        """Tell the listeners about fires that a change of their job has skipped."""
        if record is not None:
            self._run_events.ended(record, alias)

    def _time(self, job: Job, now: int) -> None:
        """Set the first run time of a job."""
        trigger = job.trigger
        job.at = job.nominal = trigger.next_fire(None, now)
        job.timed = True
        if job.at is None:
            self._logger.warning("job %r will never run: %s has no fire time ahead", job.id, trigger)
        elif trigger.jitter:
            job.at += int(trigger.jitter * self._clock.random() * SECOND)

    def _check_executor(self, job: Job, store: JobStore) -> None:
        """Refuse an executor that nobody has, where nobody else could ever come to have it."""
        if job.executor == "queue" or not store.volatile:
            return
        if not any(f".{job.executor}" in node.lanes for node in store.nodes()):
            raise UnknownAlias("executor", job.executor, (*self._executors, "queue"))

    def _now(self, alias: str) -> int:
        node = self._node
        link = node.links.get(alias) if node is not None else None
        return self._clock.now() if link is None else link.now()

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
        """Decorate a function to add it as a job; a job that has the id already is replaced."""

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
        if "next_run_time" in changes:
            changes["next_run_time"] = convert_to_datetime(changes["next_run_time"], self.timezone, "next_run_time")
        return self._change(job_id, jobstore, lambda job: job.evolve(**changes))

    def reschedule_job(
        self, job_id: str, jobstore: str | None = None, trigger: BaseTrigger | str | None = None, **trigger_args: Any
    ) -> Job:
        """Give a job another trigger; its next run time is computed from now."""
        made = self._create_trigger(trigger, trigger_args, self._now(jobstore or "default"))

        def change(job: Job) -> Job:
            changed = job.evolve(trigger=made)
            self._time(changed, self._now(job._jobstore_alias or "default"))
            return changed

        return self._change(job_id, jobstore, change)

    def pause_job(self, job_id: str, jobstore: str | None = None) -> Job:
        """Stop a job from coming due."""
        return self._change(job_id, jobstore, lambda job: job.evolve(next_run_time=None))

    def resume_job(self, job_id: str, jobstore: str | None = None) -> Job | None:
        """Let a job come due again, from now on; one that has no fire time left is removed (None)."""

        def change(job: Job) -> Job:
            changed = job.copy()
            self._time(changed, self._now(job._jobstore_alias or "default"))
            return changed

        job = self._change(job_id, jobstore, change)
        if job.at is None:
            self.remove_job(job_id, jobstore)
            return None
        return job

    def _change(self, job_id: str, jobstore: str | None, change: Callable[[Job], Job]) -> Job:
        """Read, change and write a job, again if somebody else wrote it meanwhile."""
        with self._lock:
            for item in self._pending:
                if item.job.id == job_id and jobstore in (None, item.alias):
                    changed = change(item.job)
                    changed._scheduler = self
                    return item.job._follow(changed)
        while True:
            job, alias = self._lookup(job_id, jobstore)
            changed = change(job)
            try:
                missed = write_job(self._jobstores[alias], job, changed, self._now(alias))
                break
            except VersionConflict:
                continue
        changed._scheduler = self
        changed._jobstore_alias = alias
        self._tell_missed(missed, alias)
        self._dispatch_event(JobEvent(events.EVENT_JOB_MODIFIED, job_id, alias))
        if self._node is not None:
            self._node.wake_for(alias, changed.at)
        return changed

    def get_jobs(self, jobstore: str | None = None, pending: bool | None = None) -> list[Job]:
        """Return the jobs of a store, or of all, by next run time; those not stored yet too."""
        if jobstore is not None and self._node is not None:
            self._known("job store", jobstore, self._jobstores)
        with self._lock:
            jobs = [item.job for item in self._pending if jobstore in (None, item.alias)]
            stores = {a: s for a, s in self._jobstores.items() if jobstore in (None, a)} if self._node else {}
        if pending is True:
            return jobs
        for alias, store in stores.items():
            jobs += [self._bind(job, alias) for job in store.get_all_jobs()]
        return jobs

    def get_job(self, job_id: str, jobstore: str | None = None) -> Job | None:
        """Return a job, or None."""
        try:
            job, alias = self._lookup(job_id, jobstore)
        except JobLookupError:
            return None
        return job if job._scheduler is not None else self._bind(job, alias)

    def _bind(self, job: Job, alias: str) -> Job:
        job._scheduler = self
        job._jobstore_alias = alias
        return job

    def current_run_time(self, job: Job) -> int | None:
        """Return the job's next run time as it is now where that is cheap, else as the job has it."""
        store = self._jobstores.get(job._jobstore_alias) if job._jobstore_alias is not None else None
        if store is None or not store.keeps_objects:
            return job.at
        current = store.lookup_job(job.id)
        return job.at if current is None else current.at

    def _lookup(self, job_id: str, jobstore: str | None) -> tuple[Job, str]:
        with self._lock:
            for item in self._pending:
                if item.job.id == job_id and jobstore in (None, item.alias):
                    return item.job, item.alias
            stores = dict(self._jobstores) if self._node is not None else {}
        if jobstore is not None:
            stores = {jobstore: stores[self._known("job store", jobstore, stores)]} if stores else {}
        for alias, store in stores.items():
            job = store.lookup_job(job_id)
            if job is not None:
                return job, alias
        raise JobLookupError(job_id, self._some_ids(stores.values()))

    def _some_ids(self, stores: Iterable[JobStore]) -> tuple[str, ...]:
        """Return job ids to suggest near matches from, if there are not too many."""
        ids = [item.job.id for item in self._pending]
        for store in stores:
            if store.counters().get("jobs", 0) <= 1000:
                ids += [job.id for job in store.get_all_jobs()]
        return tuple(ids)

    def remove_job(self, job_id: str, jobstore: str | None = None) -> None:
        """Remove a job; runs that it has already made go on."""
        with self._lock:
            for item in self._pending:
                if item.job.id == job_id and jobstore in (None, item.alias):
                    self._pending.remove(item)
                    return
        _, alias = self._lookup(job_id, jobstore)
        self._jobstores[alias].remove_job(job_id)
        self._logger.info("removed job %s from the job store %r", job_id, alias)
        self._dispatch_event(JobEvent(events.EVENT_JOB_REMOVED, job_id, alias))

    def remove_all_jobs(self, jobstore: str | None = None) -> None:
        """Remove all jobs of a store, or of all stores."""
        with self._lock:
            self._pending = [item for item in self._pending if jobstore not in (None, item.alias)]
            stores = dict(self._jobstores) if self._node is not None else {}
        if jobstore is not None and stores:
            stores = {jobstore: stores[self._known("job store", jobstore, stores)]}
        for store in stores.values():
            store.remove_all_jobs()
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
        """Return the record of what was fired, newest first: of a job, of a store, in a status, or of all.

        `since` is a datetime or how long ago; `.more` of what is returned says whether there are more than `limit`.
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
        """Print the jobs of a store, or of all, in words."""
        waiting = self.get_jobs(jobstore, pending=True)
        sections = [("Pending jobs", waiting)] if waiting or self._node is None else []
        for alias, store in sorted(self._jobstores.items()) if self._node is not None else ():
            if jobstore in (None, alias):
                sections.append((f"Jobstore {alias}", [self._bind(job, alias) for job in store.get_all_jobs()]))
        from mainspring.schedulers import portable  # loaded when asked for: it brings json and decimal with it

        portable.print_jobs(sections, out or sys.stdout)

    def export_jobs(self, outfile: Any, jobstore: str | None = None) -> None:
        """Write the jobs as JSON to a file or path."""
        from mainspring.schedulers import portable

        portable.export_jobs(self.get_jobs(jobstore), outfile)

    def import_jobs(self, infile: Any, jobstore: str = "default") -> None:
        """Add the jobs of a file written by export_jobs; a job whose id is taken replaces the one that is there."""
        from mainspring.schedulers import portable

        for job in portable.import_jobs(infile):
            job._scheduler = self
            with self._lock:
                if self._node is None:
                    self._pending.append(PendingJob(job, jobstore, True))
                    continue
            self._store(job, jobstore, True)
        self.wakeup()
