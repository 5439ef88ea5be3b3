"""The verbs about jobs, over an app's one store: add, change, pause, run now, preview; schedules declared in code."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mainspring.app.handle import RunHandle
from mainspring.app.registry import check_queue, is_same, is_typed_in, job_id_of, make_options, reference_of
from mainspring.app.runs import ALIAS, Runs
from mainspring.core import transitions
from mainspring.core.ids import check_id, pin
from mainspring.core.instants import SECOND, from_us
from mainspring.core.job import Job
from mainspring.core.plan import Firing, Place, make_run
from mainspring.core.policy import policy_to_data
from mainspring.core.run import Call, Run, Status
from mainspring.core.validation import POLICY_FIELDS, check_field
from mainspring.errors import ConflictingIdError, MaxInstancesReachedError, VersionConflict, near
from mainspring.events import EVENT_JOB_ADDED, EVENT_JOB_MODIFIED, EVENT_JOB_REMOVED, JobEvent
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.changing import replace_job, write_job
from mainspring.jobstores.finding import find_job
from mainspring.node.new_ids import new_job_id
from mainspring.plugins import check_options, trigger_factory
from mainspring.triggers.base import BaseTrigger
from mainspring.util import convert_to_datetime, undefined

if TYPE_CHECKING:
    from mainspring.app.registry import Registry
    from mainspring.app.store import AppStore

__all__ = ["Jobs", "Reconciled"]

_Jobs = list[Job]  # inside the class, `list` is a verb
_Moments = list[datetime]

_DEFAULTS: Final = {"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
_NOT_WHEN: Final = {*POLICY_FIELDS, *_DEFAULTS, "args", "kwargs", "name", "queue"}
"""The options of a declared schedule that are not its trigger's."""
_JOB_OPTIONS: Final = {*_NOT_WHEN, "id", "shard"} - {"then", "collect"}
"""Names that people try for an option we do not have."""

TRIES: Final = 1000
"""So often may somebody else change a job just as it is to be run now."""

log = logging.getLogger("mainspring.app")


class Reconciled(NamedTuple):
    """What comparing the declared schedules with the store led to; `gone` are in the store but not in the code."""

    added: list[str]
    updated: list[str]
    unchanged: list[str]
    gone: list[str]


class Jobs:
    """An app's jobs, whose runs go to queues. `app.jobs()` lists them; a verb about a job takes its id, too."""

    def __init__(self, app_store: AppStore, tasks: Registry, runs: Callable[[], Runs], lease: float) -> None:
        self._app_store, self._tasks, self._runs, self._lease = app_store, tasks, runs, lease
        self._owner = _Owner(self, app_store)
        self._declared: dict[str, Callable[[], Job]] = {}
        self._functions: dict[str, Callable[..., Any]] = {}
        """The function of each declared schedule."""

    @property
    def _store(self) -> JobStore:
        return self._app_store.store

    # -- adding ------------------------------------------------------------------------------------------------

    def add(
        self,
        /,
        func: Any,
        trigger: BaseTrigger | str | None = None,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        name: str | None = None,
        next_run_time: Any = undefined,
        replace_existing: bool = False,
        **options: Any,
    ) -> Job:
        """Add a job, with the arguments of a scheduler's `add_job`; its runs go to the task's queue."""
        job = self._make(func, trigger, args, kwargs, id, name, next_run_time, **options)
        return self._add(job, replace_existing)

    def _make(
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
        task = self._tasks.resolve(func)
        call = task.call(*(() if args is None else args), **(kwargs or {}))
        options = {field: rest.pop(field) for field in POLICY_FIELDS & rest.keys()}
        policy = make_options(task.defaults, options).policy
        self._tasks.check_policy(policy)
        plain = {field: check_field(field, rest.pop(field, default)) for field, default in _DEFAULTS.items()}
        job_id, shard = new_job_id() if id is None else check_id(id), rest.pop("shard", None)
        job = Job(
            job_id if shard is None else check_id(pin(shard, job_id)),
            Call(self._tasks.stored(task), tuple(call.args), call.kwargs, name or task.__name__),
            self._trigger(trigger, rest),
            executor="queue",
            queue=task.defaults.queue if queue is None else check_queue(queue),
            policy=policy,
            **plain,
        )
        if next_run_time is not undefined:
            job.next_run_time = convert_to_datetime(next_run_time, self._app_store.timezone, "next_run_time")
        return job

    def _trigger(self, trigger: BaseTrigger | str | None, options: dict[str, Any]) -> BaseTrigger:
        """Make a trigger of its name and arguments, or of a crontab expression."""
        if isinstance(trigger, BaseTrigger):
            _refuse(options, "a job, and the trigger is made already", _JOB_OPTIONS)
            return trigger
        if trigger is not None and not isinstance(trigger, str):
            raise TypeError(f"trigger must be a trigger object, its name or a crontab expression, not {trigger!r}")
        if trigger is not None and (len(trigger.split()) > 1 or trigger.startswith("@")):
            from mainspring.triggers.cron import CronTrigger

            zone = options.pop("timezone", None) or self._app_store.timezone
            _refuse(options, "a crontab schedule", {"timezone", *_JOB_OPTIONS})
            return CronTrigger.from_crontab(trigger, timezone=zone)
        name = trigger or "date"
        factory, zoned, dated = trigger_factory(name)
        if zoned:
            options.setdefault("timezone", self._app_store.timezone)
        if dated:
            options.setdefault("made_at", self._app_store.clock.now())
        try:
            return factory(**options)  # type: ignore[no-any-return]
        except TypeError:
            check_options("trigger", name, factory, options, _JOB_OPTIONS)
            raise

    def _add(self, job: Job, replace: bool) -> Job:
        """Store a job."""
        computed = not job.timed
        if computed:
            self._timed(job)
        missed = None
        if replace:
            missed = replace_job(self._store, job, self._app_store.now(), computed=computed)
        else:
            self._store.add_job(job)
        self._app_store.wake_scheduler(job.at)
        self._tell(EVENT_JOB_ADDED, job.id, missed)
        return self._bound(job)

    def _timed(self, job: Job) -> Job:
        """Give a job its first fire time from now on."""
        job.at = job.nominal = job.trigger.next_fire(None, self._app_store.now())
        job.timed = True
        if job.at is None:
            log.warning("job %r will never run: %s has no fire time ahead", job.id, job.trigger)
        elif job.trigger.jitter:
            job.at += int(job.trigger.jitter * self._app_store.clock.random() * SECOND)
        return job

    def _tell(self, code: int, job_id: str, missed: Run | None = None) -> None:
        """Tell the listeners what was done to a job, and which overdue fires that has skipped."""
        if missed is not None:
            self._app_store.events.ended(missed, ALIAS)
        self._app_store.events.publish(JobEvent(code, job_id, ALIAS))

    def _bound(self, job: Job) -> Job:
        job._scheduler, job._jobstore_alias = self._owner, ALIAS
        return job

    # -- looking -----------------------------------------------------------------------------------------------

    def list(self) -> _Jobs:
        """Return all jobs by next run time, paused ones last."""
        return [self._bound(job) for job in self._store.get_all_jobs()]

    __call__ = list

    def get(self, job_id: str) -> Job:
        """Return a job; raise JobLookupError."""
        return self._bound(find_job(self._store, job_id))

    def preview(self, job: str | Job, n: int = 10) -> _Moments:
        """Return a job's next `n` fire times, before jitter."""
        moments: _Moments = []
        found = self.get(job_id_of(job))
        trigger = found.trigger
        at = found.nominal if found.at is not None else trigger.next_fire(None, self._app_store.now())
        zone = getattr(trigger, "timezone", None) or self._app_store.timezone
        while at is not None and len(moments) < n:
            moments.append(from_us(at, zone))
            at = trigger.next_fire(at, at)
        return moments

    # -- changing ----------------------------------------------------------------------------------------------

    def _change(self, job_id: str, change: Callable[[Job], Job]) -> Job:
        """Read, change and write a job, again if somebody else wrote it meanwhile."""
        while True:
            job = self.get(job_id)
            changed = change(job)
            try:
                missed = write_job(self._store, job, changed, self._app_store.now())
            except VersionConflict:
                continue
            self._app_store.wake_scheduler(changed.at)
            self._tell(EVENT_JOB_MODIFIED, job_id, missed)
            return self._bound(changed)

    def modify(self, job: str | Job, /, **changes: Any) -> Job:
        """Change attributes of a job."""
        if "next_run_time" in changes:
            zone = self._app_store.timezone
            changes["next_run_time"] = convert_to_datetime(changes["next_run_time"], zone, "next_run_time")
        if "func" in changes:
            changes["func"] = self._tasks.stored(self._tasks.resolve(changes["func"]))
        return self._change(job_id_of(job), lambda job: job.evolve(**changes))

    def reschedule(self, job: str | Job, trigger: Any, /, **trigger_args: Any) -> Job:
        """Give a job another trigger; its next run time is computed from now."""
        made = self._trigger(trigger, trigger_args)
        return self._change(job_id_of(job), lambda job: self._timed(job.evolve(trigger=made)))

    def pause(self, job: str | Job) -> Job:
        """Stop a job from coming due."""
        return self._change(job_id_of(job), lambda job: job.evolve(next_run_time=None))

    def resume(self, job: str | Job) -> Job | None:
        """Let a job come due again, from now on; one that has no fire time left is removed (None)."""
        changed = self._change(job_id_of(job), lambda job: self._timed(job.copy()))
        if changed.at is None:
            self.remove(changed)
            return None
        return changed

    def skip_next(self, job: str | Job) -> Job:
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

        return self._change(job_id_of(job), change)

    def run_now(self, job: str | Job) -> RunHandle[Any]:
        """Make a run of a job at once, besides its schedule; raise MaxInstancesReachedError above `max_instances`."""
        job_id = job_id_of(job)
        for _ in range(TRIES):
            read, now = self.get(job_id), self._app_store.now()
            if self._store.count_unfinished([(read.id, read.incarnation)])[0] >= read.max_instances:
                raise MaxInstancesReachedError(read)
            place = Place(read.queue if read.executor == "queue" else f".{read.executor}")
            run = make_run(read, read.incarnation, place, now, now)
            step = Firing(read.id, read.version, read.at, read.nominal, (run,))
            # Whatever fired the job since it was read has made a new version, and is counted next time.
            if self._store.fire_besides(step, self._lease):
                self._app_store.events.submitted([run], ALIAS)
                self._app_store.work_inline([run.id])
                return RunHandle(self._runs(), run.id)
        raise VersionConflict(job_id)

    def remove(self, job: str | Job, *, cancel_runs: bool = False) -> None:
        """Remove a job; with `cancel_runs` also cancel the runs it has made that have not ended."""
        job_id, runs = job_id_of(job), self._runs()
        self._store.remove_job(self.get(job_id).id)
        self._tell(EVENT_JOB_REMOVED, job_id)
        if cancel_runs:
            unfinished = [*runs.iterate(status=("pending", "running"), job=job_id)]
            now = self._app_store.now()
            runs.end([transitions.cancel(run, now) for run in unfinished if run.status is Status.PENDING])
            for run in unfinished:
                runs.cancel(run.id)

    @property
    def declared(self) -> int:
        """How many schedules the code declares."""
        return len(self._declared)

    # -- declared in code --------------------------------------------------------------------------------------

    def declare(self, func: Any, trigger: Any, id: str | None, given: Mapping[str, Any]) -> None:
        """Note a schedule, compared later as it is written here."""
        task = self._tasks.resolve(func)
        name, function = task.name, task.func
        job_id = check_id(id or name)
        before = self._functions.get(job_id)
        if before is not None and (before is function or not is_same(before, function) or not is_typed_in(function)):
            raise ConflictingIdError(job_id, "give each schedule an id of its own: @app.schedule(..., id='...')")

        def make() -> Job:
            # The task as it is declared by now: @app.task may also stand above @app.schedule.
            task = self._tasks.find(name)
            job = self._make(task, trigger, id=job_id, **dict(given))
            policy = sorted(policy_to_data(task.defaults.policy, reference_of).items())
            said = {option: _shown(value) for option, value in sorted(given.items())}
            when = {option: said.pop(option) for option in list(said) if option not in _NOT_WHEN}
            job.declared = f"{_digest(_shown(trigger), when)}.{_digest(name, said, task.defaults.queue, policy)}"
            return job

        make()  # so that a mistake is seen where it is written
        self._declared[job_id] = make
        self._functions[job_id] = function

    def reconcile(self, remove: bool = False) -> Reconciled:
        """Bring the store in line with the declared schedules; what people paused or edited stays so."""
        done = Reconciled([], [], [], [])
        for job_id, make in self._declared.items():
            fresh = make()
            if self._store.sign_anew(fresh):
                done.updated.append(job_id)
                continue
            known = self._store.lookup_job(job_id)
            if known is None:
                try:
                    self._add(fresh, replace=False)
                    done.added.append(job_id)
                except ConflictingIdError:  # another node was quicker, or it is set aside
                    done.unchanged.append(job_id)
            elif known.declared == fresh.declared:
                done.unchanged.append(job_id)
            elif known.declared is None:
                log.warning("job %r was added by hand; the schedule of that id in the code is left out", job_id)
                done.unchanged.append(job_id)
            else:
                self._change(job_id, partial(self._renewed, fresh=fresh))
                done.updated.append(job_id)
        self._report_gone(done, remove)
        return done

    def declare_again(self) -> None:
        """Add the declared schedules that the store has lost; leave alone those that it still has."""
        for job_id, make in self._declared.items():
            if self._store.lookup_job(job_id) is None:
                try:
                    self._add(make(), replace=False)
                except ConflictingIdError:  # another node was quicker, or it is one that only others can read
                    continue
                log.warning("schedule %r was lost with the store's data and is declared again", job_id)

    def _renewed(self, job: Job, fresh: Job) -> Job:
        changed = job.copy()
        for name in ("call", "queue", "policy", "declared", *_DEFAULTS):
            setattr(changed, name, getattr(fresh, name))
        if str(fresh.declared).partition(".")[0] != str(job.declared).partition(".")[0]:
            changed.trigger = fresh.trigger
            if job.at is not None:  # what is paused stays so
                self._timed(changed)
        return changed

    def _report_gone(self, done: Reconciled, remove: bool) -> None:
        for job in self._store.get_all_jobs():
            if job.declared is None or job.id in self._declared:
                continue
            done.gone.append(job.id)
            if remove:
                self._store.remove_job(job.id)
                self._tell(EVENT_JOB_REMOVED, job.id)
                log.warning("schedule %r is no longer declared in the code and was removed", job.id)
            else:
                log.warning(
                    "schedule %r is no longer declared in the code but still in the store, and goes on; "
                    "app.reconcile(remove=True) removes it",
                    job.id,
                )


class _Owner:
    """Passes on what a job is asked to do itself, `job.pause()`, under the names of a scheduler's verbs."""

    def __init__(self, jobs: Jobs, app_store: AppStore) -> None:
        self._jobs, self._app_store = jobs, app_store

    @property
    def timezone(self) -> tzinfo:
        return self._app_store.timezone

    def modify_job(self, job_id: str, jobstore: str | None = None, **changes: Any) -> Job:
        return self._jobs.modify(job_id, **changes)

    def reschedule_job(self, job_id: str, jobstore: str | None = None, trigger: Any = None, **trigger_args: Any) -> Job:
        return self._jobs.reschedule(job_id, trigger, **trigger_args)

    def pause_job(self, job_id: str, jobstore: str | None = None) -> Job:
        return self._jobs.pause(job_id)

    def resume_job(self, job_id: str, jobstore: str | None = None) -> Job | None:
        return self._jobs.resume(job_id)

    def remove_job(self, job_id: str, jobstore: str | None = None) -> None:
        self._jobs.remove(job_id)

    def current_run_time(self, job: Job) -> int | None:
        return job.at


def _refuse(options: Mapping[str, Any], what: str, known: Iterable[str]) -> None:
    """Raise if an option is left that nothing takes."""
    for option in options:
        raise TypeError(f"{option!r} is no argument of {what}{near(option, known)}")


def _digest(*said: Any) -> str:
    return hashlib.sha256(repr(said).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _shown(value: Any) -> str:
    """Return a value as text that is the same in every process."""
    if isinstance(value, BaseTrigger):
        return repr(_without_start(value.to_data()))
    if callable(value):
        return reference_of(value)
    return repr(value)


def _without_start(data: Any) -> Any:
    """Leave out the moment at which a trigger was made, which is where an interval starts unless it is told."""
    if isinstance(data, dict):
        moves = "start_date" if data.get("type") in ("interval", "calendarinterval") else None
        return {key: _without_start(item) for key, item in sorted(data.items()) if key != moves}
    return [_without_start(item) for item in data] if isinstance(data, list | tuple) else data
