"""The verbs about jobs, over an app's one store: add, change, pause, run now, preview; schedules declared in code."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mainspring import outcome
from mainspring.clock import SECOND, Clock, from_us
from mainspring.errors import ConflictingIdError, JobLookupError, VersionConflict
from mainspring.handle import RunHandle
from mainspring.job import POLICY_FIELDS, Job, check_field, check_id, make_policy, new_job_id
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.plugins import check_options, trigger_factory
from mainspring.run import Call, Run, Status
from mainspring.triggers.base import BaseTrigger
from mainspring.util import convert_to_datetime, undefined

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["Declared", "JobsOfApp", "Reconciled"]

_PLAIN: Final = ("misfire_grace_time", "coalesce", "max_instances")
_DEFAULTS: Final = {"misfire_grace_time": None, "coalesce": True, "max_instances": 1}

log = logging.getLogger("mainspring.app")


class Declared(NamedTuple):
    """A schedule as the code declares it."""

    id: str
    digest: str
    make: Callable[[], Job]


class Reconciled(NamedTuple):
    """What comparing the declared schedules with the store led to; `gone` are in the store but not in the code."""

    added: list[str]
    updated: list[str]
    unchanged: list[str]
    gone: list[str]


class JobsOfApp:
    """An app's jobs; their runs go to queues."""

    def __init__(self, app: Mainspring, clock: Clock) -> None:
        self._app, self._clock = app, clock
        self.declared: dict[str, Declared] = {}

    @property
    def timezone(self) -> tzinfo:
        """The zone in which times are read and shown."""
        return self._app.timezone

    @property
    def _store(self) -> JobStore:
        return self._app.store

    # -- adding ------------------------------------------------------------------------------------------------

    def make(
        self,
        func: Any,
        trigger: BaseTrigger | str | None,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        name: str | None = None,
        next_run_time: Any = undefined,
        queue: str | None = None,
        **rest: Any,
    ) -> Job:
        """Make a job of a task or callable, all of it checked."""
        task = self._app.as_task(func)
        call = task.call(*(() if args is None else args), **(kwargs or {}))
        policy = {field: rest.pop(field) for field in POLICY_FIELDS & rest.keys()}
        plain = {field: check_field(field, rest.pop(field, default)) for field, default in _DEFAULTS.items()}
        job = Job(
            new_job_id() if id is None else check_id(id),
            Call(self._app.stored_func(task), tuple(call.args), call.kwargs, name or task.__name__),
            self.trigger(trigger, rest),
            executor="queue",
            queue=task.defaults.queue if queue is None else check_field("queue", queue),
            policy=make_policy(task.defaults.policy, **policy) if policy else task.defaults.policy,
            **plain,
        )
        if next_run_time is not undefined:
            job.next_run_time = convert_to_datetime(next_run_time, self.timezone, "next_run_time")
        return job

    def trigger(self, trigger: BaseTrigger | str | None, options: dict[str, Any]) -> BaseTrigger:
        """Make a trigger of its name and arguments, or of a crontab expression."""
        if isinstance(trigger, BaseTrigger):
            if options:
                raise TypeError(f"{next(iter(options))!r} is no argument of a job, and the trigger is made already")
            return trigger
        if trigger is not None and not isinstance(trigger, str):
            raise TypeError(f"trigger must be a trigger object, its name or a crontab expression, not {trigger!r}")
        if trigger is not None and (len(trigger.split()) == 5 or trigger.startswith("@")):
            from mainspring.triggers.cron import CronTrigger

            zone = options.pop("timezone", None) or self.timezone
            if options:
                raise TypeError(f"{next(iter(options))!r} is no argument of a crontab schedule; only timezone is")
            return CronTrigger.from_crontab(trigger, timezone=zone)
        name = trigger or "date"
        factory, zoned = trigger_factory(name)
        if zoned:
            options.setdefault("timezone", self.timezone)
        try:
            return factory(**options)  # type: ignore[no-any-return]
        except TypeError:
            check_options("trigger", name, factory, options)
            raise

    def add(self, job: Job, replace: bool) -> Job:
        """Store a job."""
        if not job.timed:
            self._time(job)
        if replace:
            self._store.add_jobs([job], replace=True)
        else:
            self._store.add_job(job)
        return self._bound(job)

    def _time(self, job: Job) -> None:
        job.at = job.nominal = job.trigger.next_fire(None, self._app.now())
        job.timed = True
        if job.at is None:
            log.warning("job %r will never run: %s has no fire time ahead", job.id, job.trigger)
        elif job.trigger.jitter:
            job.at += int(job.trigger.jitter * self._clock.random() * SECOND)

    def _bound(self, job: Job) -> Job:
        job._scheduler, job._jobstore_alias = self, "default"
        return job

    # -- looking -----------------------------------------------------------------------------------------------

    def all(self) -> list[Job]:
        """Return all jobs by next run time, paused ones last."""
        return [self._bound(job) for job in self._store.get_all_jobs()]

    def get(self, job_id: str) -> Job:
        """Return a job; raise JobLookupError with near matches."""
        job = self._store.lookup_job(job_id)
        if job is None:
            few = self._store.counters().get("jobs", 0) <= 1000
            raise JobLookupError(job_id, tuple(each.id for each in self._store.get_all_jobs()) if few else ())
        return self._bound(job)

    def current_run_time(self, job: Job) -> int | None:
        """Return the job's next run time as it was read."""
        return job.at

    def preview(self, job: Job, number: int) -> list[datetime]:
        """Return the next fire times of a job, before jitter."""
        moments: list[datetime] = []
        at = job.nominal if job.at is not None else job.trigger.next_fire(None, self._app.now())
        zone = getattr(job.trigger, "timezone", None) or self.timezone
        while at is not None and len(moments) < number:
            moments.append(from_us(at).astimezone(zone))
            at = job.trigger.next_fire(at, at)
        return moments

    # -- changing ----------------------------------------------------------------------------------------------

    def change(self, job_id: str, change: Callable[[Job], Job]) -> Job:
        """Read, change and write a job, again if somebody else wrote it meanwhile."""
        while True:
            changed = change(self.get(job_id))
            try:
                self._store.update_job(changed)
            except VersionConflict:
                continue
            self._app.wake_for(changed.at)
            return self._bound(changed)

    def modify_job(self, job_id: str, jobstore: str | None = None, **changes: Any) -> Job:
        """Change attributes of a job."""
        if "next_run_time" in changes:
            changes["next_run_time"] = convert_to_datetime(changes["next_run_time"], self.timezone, "next_run_time")
        if "func" in changes:
            changes["func"] = self._app.stored_func(self._app.as_task(changes["func"]))
        return self.change(job_id, lambda job: job.evolve(**changes))

    def reschedule_job(self, job_id: str, jobstore: str | None = None, trigger: Any = None, **trigger_args: Any) -> Job:
        """Give a job another trigger; its next run time is computed from now."""
        made = self.trigger(trigger, trigger_args)

        def change(job: Job) -> Job:
            changed = job.evolve(trigger=made)
            self._time(changed)
            return changed

        return self.change(job_id, change)

    def pause_job(self, job_id: str, jobstore: str | None = None) -> Job:
        """Stop a job from coming due."""
        return self.change(job_id, lambda job: job.evolve(next_run_time=None))

    def resume_job(self, job_id: str, jobstore: str | None = None) -> Job | None:
        """Let a job come due again, from now on; one that has no fire time left is removed (None)."""

        def change(job: Job) -> Job:
            changed = job.copy()
            self._time(changed)
            return changed

        job = self.change(job_id, change)
        if job.at is None:
            self.remove_job(job_id)
            return None
        return job

    def skip_next(self, job_id: str) -> Job:
        """Leave out a job's next fire."""

        def change(job: Job) -> Job:
            if job.nominal is None or job.at is None:
                raise ValueError(f"job {job.id!r} is paused, so there is no next fire to skip")
            following = job.trigger.next_fire(job.nominal, job.nominal)
            if following is None:
                raise ValueError(f"the next fire of job {job.id!r} is its last; remove the job instead")
            changed = job.copy()
            changed.at = changed.nominal = following
            return changed

        return self.change(job_id, change)

    def run_now(self, job_id: str) -> RunHandle[Any]:
        """Make a run of a job at once, besides its schedule; raise MaxInstancesReachedError above `max_instances`."""
        from mainspring.errors import MaxInstancesReachedError

        job, now = self.get(job_id), self._app.now()
        unfinished = RunQuery(status=(Status.PENDING, Status.RUNNING), job_id=job.id)
        if self._store.count_runs(unfinished) >= job.max_instances:
            raise MaxInstancesReachedError(job)
        run = Run(
            id=f"{job.id}@{job.incarnation}@{now}",
            call=job.call,
            queue=job.queue,
            executor=job.executor,
            job_id=job.id,
            policy=job.policy,
            priority=job.policy.priority,
            created_at=now,
            fire_time=now,
            run_at=now,
        )
        return RunHandle(self._app.runs, self._store.add_runs([run])[0])

    def remove_job(self, job_id: str, jobstore: str | None = None, *, cancel_runs: bool = False) -> None:
        """Remove a job; with `cancel_runs` also cancel the runs of it that have not ended."""
        self._store.remove_job(self.get(job_id).id)
        if cancel_runs:
            unfinished = list(self._app.runs.iterate(status=("pending", "running"), job=job_id))
            waiting = [outcome.cancel(run, self._app.now()) for run in unfinished if run.status is Status.PENDING]
            self._store.settle(waiting)
            for run in unfinished:
                self._app.runs.cancel(run.id)

    # -- declared in code --------------------------------------------------------------------------------------

    def declare(self, func: Any, trigger: Any, id: str | None, given: Mapping[str, Any]) -> None:
        """Note a schedule, compared later as it is written here."""
        task = self._app.as_task(func)
        job_id = id or task.name
        if job_id in self.declared:
            raise ConflictingIdError(job_id)
        text = repr((task.name, _shown(trigger), sorted((name, _shown(value)) for name, value in given.items())))
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        made: list[Job] = []

        def make() -> Job:
            job = self.make(func, trigger, id=job_id, **dict(given))
            job.declared = digest
            return job

        made.append(make())  # so that a mistake is seen where it is written
        self.declared[job_id] = Declared(job_id, digest, make)

    def reconcile(self, remove: bool = False) -> Reconciled:
        """Bring the store in line with the declared schedules; what people paused or edited stays so."""
        done = Reconciled([], [], [], [])
        for declared in self.declared.values():
            known = self._store.lookup_job(declared.id)
            if known is None:
                try:
                    self.add(declared.make(), replace=False)
                    done.added.append(declared.id)
                except ConflictingIdError:  # another node was quicker
                    done.unchanged.append(declared.id)
            elif known.declared == declared.digest:
                done.unchanged.append(declared.id)
            elif known.declared is None:
                log.warning("job %r was added by hand; the schedule of that id in the code is left out", declared.id)
                done.unchanged.append(declared.id)
            else:
                self.change(declared.id, lambda job, declared=declared: self._renewed(job, declared))  # type: ignore[misc]
                done.updated.append(declared.id)
        self._report_gone(done, remove)
        return done

    def _renewed(self, job: Job, declared: Declared) -> Job:
        fresh = declared.make()
        changed = job.copy()
        for name in ("call", "trigger", "queue", "policy", "declared", *_PLAIN):
            setattr(changed, name, getattr(fresh, name))
        if job.at is not None and fresh.trigger.to_data() != job.trigger.to_data():
            self._time(changed)
        return changed

    def _report_gone(self, done: Reconciled, remove: bool) -> None:
        for job in self._store.get_all_jobs():
            if job.declared is None or job.id in self.declared:
                continue
            done.gone.append(job.id)
            if remove:
                self._store.remove_job(job.id)
                log.warning("schedule %r is no longer declared in the code and was removed", job.id)
            else:
                log.warning(
                    "schedule %r is no longer declared in the code but still in the store, and goes on; "
                    "app.reconcile(remove=True) removes it",
                    job.id,
                )


def _shown(value: Any) -> str:
    """Return a value as text that is the same in every process."""
    if isinstance(value, BaseTrigger):
        return repr(sorted(value.to_data().items(), key=lambda item: item[0])) if not _moves(value) else str(value)
    if callable(value):
        return f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', repr(value))}"
    return repr(value)


def _moves(trigger: BaseTrigger) -> bool:
    """Tell whether a trigger takes the moment it is made at as its start."""
    return hasattr(trigger, "interval") or type(trigger).__name__ == "IntervalTrigger"
