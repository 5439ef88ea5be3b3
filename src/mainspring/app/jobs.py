"""The jobs of an app: the job book over the app's store, and the schedules declared in code."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mainspring.app.handle import RunHandle
from mainspring.app.registry import is_same, is_typed_in, job_id_of, make_options, reference_of
from mainspring.app.runs import ALIAS, Runs
from mainspring.core.ids import check_id
from mainspring.core.job import Job
from mainspring.core.policy import Policy, policy_to_data
from mainspring.core.run import Call, Status
from mainspring.core.validation import POLICY_FIELDS
from mainspring.errors import ConflictingIdError
from mainspring.node.job_book import JobBook
from mainspring.triggers.base import BaseTrigger
from mainspring.util import undefined

if TYPE_CHECKING:
    from mainspring.app.registry import Registry
    from mainspring.app.store import AppStore

__all__ = ["Jobs", "Reconciled"]

_DEFAULTS: Final = {"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
_NOT_WHEN: Final = {*POLICY_FIELDS, *_DEFAULTS, "args", "kwargs", "name", "queue"}
"""The options of a declared schedule that are not its trigger's."""

log = logging.getLogger("mainspring.app")


class Reconciled(NamedTuple):
    """What comparing the declared schedules with the store led to; `gone` are in the store but not in the code."""

    added: list[str]
    updated: list[str]
    unchanged: list[str]
    gone: list[str]


class Jobs(JobBook):
    """An app's jobs, whose runs go to queues. `app.jobs()` lists them; a verb about a job takes its id, too."""

    def __init__(self, app_store: AppStore, tasks: Registry, runs: Callable[[], Runs], lease: float) -> None:
        super().__init__(
            lambda: {ALIAS: app_store.store},
            lambda _: app_store.now(),
            lambda _, at: app_store.wake_scheduler(at),
            self._describe_call,
            zone=lambda: app_store.timezone,
            random=app_store.clock.random,
            events=app_store.events,
            lock=app_store.lock,
        )
        self._app_store, self._tasks, self._runs, self._lease = app_store, tasks, runs, lease
        self._declared: dict[str, Callable[[], Job]] = {}
        self._functions: dict[str, Callable[..., Any]] = {}
        """The function of each declared schedule."""

    def _describe_call(
        self, func: Any, args: Any, kwargs: Any, name: str | None, policy: dict[str, Any]
    ) -> tuple[Call, Policy, dict[str, Any]]:
        task = self._tasks.resolve(func)
        call = task.call(*(() if args is None else args), **(kwargs or {}))
        made = make_options(task.defaults, policy).policy
        self._tasks.check_policy(made)
        stored = Call(self._tasks.stored(task), tuple(call.args), call.kwargs, name or task.__name__)
        return stored, made, {"executor": "queue", "queue": task.defaults.queue, **_DEFAULTS}

    def _id_of(self, job: Any) -> str:
        return job_id_of(job)

    # -- verbs -------------------------------------------------------------------------------------------------

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
        options |= {"args": args, "kwargs": kwargs, "name": name, "next_run_time": next_run_time}
        return self.put(self.make(func, trigger, id, options), replace=replace_existing)

    __call__ = JobBook.list

    def modify(self, job: str | Job, jobstore: str | None = None, /, **changes: Any) -> Job:
        """Change attributes of a job."""
        if "func" in changes:
            changes["func"] = self._tasks.stored(self._tasks.resolve(changes["func"]))
        return super().modify(job, jobstore, **changes)

    def run_now(self, job: str | Job) -> RunHandle[Any]:
        """Make a run of a job at once, besides its schedule; raise MaxInstancesReachedError above `max_instances`."""
        run = self.fire_now(job, lease=self._lease)
        self._app_store.work_inline([run.id])
        return RunHandle(self._runs(), run.id)

    def remove(self, job: str | Job, jobstore: str | None = None, *, cancel_runs: bool = False) -> None:
        """Remove a job; with `cancel_runs` also cancel the runs it has made that have not ended."""
        runs = self._runs()
        super().remove(job, jobstore)
        if cancel_runs:
            unfinished = [*runs.iterate(status=("pending", "running"), job=self._id_of(job))]
            runs.cancel_waiting(run for run in unfinished if run.status is Status.PENDING)
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
            # By the clock of this machine: a declaration opens no store.
            job = self.make(task, trigger, job_id, dict(given), made_at=self._app_store.clock.now())
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
        done, store = Reconciled([], [], [], []), self._app_store.store
        for job_id, make in self._declared.items():
            fresh = make()
            if store.sign_anew(fresh):
                done.updated.append(job_id)
                continue
            known = store.lookup_job(job_id)
            if known is None:
                try:
                    self.put(fresh)
                    done.added.append(job_id)
                except ConflictingIdError:  # another node was quicker, or it is set aside
                    done.unchanged.append(job_id)
            elif known.declared == fresh.declared:
                done.unchanged.append(job_id)
            elif known.declared is None:
                log.warning("job %r was added by hand; the schedule of that id in the code is left out", job_id)
                done.unchanged.append(job_id)
            else:
                self._change(job_id, None, partial(self._renewed, fresh=fresh))
                done.updated.append(job_id)
        self._report_gone(done, remove)
        return done

    def declare_again(self) -> None:
        """Add the declared schedules that the store has lost; leave alone those that it still has."""
        store = self._app_store.store
        for job_id, make in self._declared.items():
            if store.lookup_job(job_id) is None:
                try:
                    self.put(make())
                except ConflictingIdError:  # another node was quicker, or it is one that only others can read
                    continue
                log.warning("schedule %r was lost with the store's data and is declared again", job_id)

    def _renewed(self, job: Job, alias: str, fresh: Job) -> Job:
        changed = job.copy()
        for name in ("call", "queue", "policy", "declared", *_DEFAULTS):
            setattr(changed, name, getattr(fresh, name))
        if str(fresh.declared).partition(".")[0] != str(job.declared).partition(".")[0]:
            changed.trigger = fresh.trigger
            if job.at is not None:  # what is paused stays so
                self._time(changed, alias)
        return changed

    def _report_gone(self, done: Reconciled, remove: bool) -> None:
        for job in self.list():
            if job.declared is None or job.id in self._declared:
                continue
            done.gone.append(job.id)
            if remove:
                self.remove(job)
                log.warning("schedule %r is no longer declared in the code and was removed", job.id)
            else:
                log.warning(
                    "schedule %r is no longer declared in the code but still in the store, and goes on; "
                    "app.reconcile(remove=True) removes it",
                    job.id,
                )


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
