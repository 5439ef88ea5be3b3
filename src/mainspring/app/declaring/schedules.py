"""The schedules that an app's code declares. The store keeps them as jobs; `reconcile` compares the two."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mainspring.app.declaring.task import job_id_of, make_options, reference_of
from mainspring.app.registry import is_same, is_typed_in
from mainspring.app.runs import ALIAS
from mainspring.core.ids import check_id
from mainspring.core.job import FIRING_FIELDS, Job, declared_values
from mainspring.core.policy import Policy, policy_to_data
from mainspring.core.references import module_of
from mainspring.core.run import Call
from mainspring.core.schedules.declaration import SCHEDULE, Difference, differences, is_same_trigger, without_start
from mainspring.core.schedules.linting import LINT_LOGGER, check_possible, issues_of
from mainspring.core.validation import POLICY_FIELDS, check_arguments
from mainspring.errors import ConflictingIdError
from mainspring.node.jobs.book import JobBook
from mainspring.triggers.base import BaseTrigger
from mainspring.triggers.exclusions import Exclusions, read_exclusions

if TYPE_CHECKING:
    from mainspring.app.registry import Registry
    from mainspring.app.store import AppStore

__all__ = ["DeclaredSchedules", "Reconciliation"]

_Differences = list[Difference]  # inside the class, `list` is a verb

_NOT_WHEN: Final = {*POLICY_FIELDS, *FIRING_FIELDS, "args", "kwargs", "name", "queue"}
"""The options of a declared schedule that do not belong to its trigger."""

log = logging.getLogger("mainspring.app")
lint_log = logging.getLogger(LINT_LOGGER)


class Reconciliation(NamedTuple):
    """The result of comparing the declared schedules with the store.

    `gone` are in the store but no longer in the code. `others` call functions of other packages, so another app may own
    them.
    """

    added: list[str]
    updated: list[str]
    unchanged: list[str]
    gone: list[str]
    others: list[str]


class DeclaredSchedules(JobBook):
    """A job book with the schedules that the code declares."""

    def __init__(self, app_store: AppStore, tasks: Registry) -> None:
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
        self._app_store, self._tasks = app_store, tasks
        self._declared: dict[str, Callable[[], Job]] = {}
        self._linted: set[str] = set()
        self.declared_elsewhere: tuple[str, ...] = ()
        """Prefixes of the ids of jobs that are declared outside the code, in a table for example."""
        self._functions: dict[str, Callable[..., Any]] = {}
        """The function of each declared schedule."""

    def _describe_call(
        self, func: Any, args: Any, kwargs: Any, name: str | None, policy: dict[str, Any]
    ) -> tuple[Call, Policy, dict[str, Any]]:
        task = self._tasks.resolve(func)
        args, kwargs = check_arguments(args, kwargs)
        call = task.call(*args, **kwargs)
        made = make_options(task.defaults, policy).policy
        self._tasks.check_policy(made)
        stored = Call(self._tasks.stored(task), tuple(call.args), call.kwargs, name or task.__name__)
        return stored, made, {"executor": "queue", "queue": task.defaults.queue}

    def _id_of(self, job: Any) -> str:
        return job_id_of(job)

    def _executor_for(self, job: Job) -> str | None:
        return self._tasks.executor_for(job.call, job.policy)

    def _record(self, verb: str, job_id: str, **details: Any) -> None:
        self._app_store.acts.record(verb, "job", job_id, **details)

    @property
    def declared(self) -> int:
        """The number of schedules that the code declares."""
        return len(self._declared)

    @property
    def declared_ids(self) -> tuple[str, ...]:
        """The ids of the schedules that the code declares."""
        return tuple(self._declared)

    def declare(self, func: Any, trigger: Any, id: str | None, given: Mapping[str, Any]) -> None:
        """Keep a declaration as it is written; `reconcile` compares it with the store."""
        if "exclude" in given:  # read it now, including files: a changed file counts as a changed declaration
            given = {**given, "exclude": read_exclusions(given["exclude"])}
        task = self._tasks.resolve(func)
        name, function = task.name, task.func
        job_id = check_id(id or name)
        before = self._functions.get(job_id)
        if before is not None and (before is function or not is_same(before, function) or not is_typed_in(function)):
            raise ConflictingIdError(job_id, "give each schedule an id of its own: @app.schedule(..., id='...')")

        def make() -> Job:
            # Look the task up only now: @app.task may also stand above @app.schedule.
            task = self._tasks.find(name)
            # Use the clock of this machine: a declaration opens no store.
            job = self.make(task, trigger, job_id, dict(given), made_at=self._app_store.clock.now())
            policy = sorted(policy_to_data(task.defaults.policy, reference_of).items())
            said = {option: _shown(value) for option, value in sorted(given.items())}
            when = {option: said.pop(option) for option in list(said) if option not in _NOT_WHEN}
            job.declared = f"{_digest(_shown(trigger), when)}.{_digest(name, said, task.defaults.queue, policy)}"
            return job

        self._lint(make())  # raise here, where the user wrote the mistake
        self._declared[job_id] = make
        self._functions[job_id] = function

    def _lint(self, job: Job) -> None:
        """Refuse a schedule that can never fire; warn once of probable mistakes in a schedule."""
        check_possible(job.trigger)
        if job.id not in self._linted:
            self._linted.add(job.id)
            for issue in issues_of(job, self._app_store.clock.now()):
                lint_log.warning("schedule %r: %s; %s", job.id, issue.text, issue.advice)

    def is_gone(self, job: Job) -> bool:
        """Return True if a stored job was declared in code, and this code does not declare it."""
        declared = job.declared is not None and not job.id.startswith(self.declared_elsewhere)
        return declared and job.id not in self._declared

    def declared_jobs(self) -> Sequence[Job]:
        """Return the schedules that the code declares, as new jobs that are not stored."""
        return [make() for make in self._declared.values()]

    def reconcile(self, remove: bool = False) -> Reconciliation:
        """Bring the store in line with the declared schedules; keep the pauses and edits of people.

        With `remove`, remove the schedules that are gone from the code, except those that another app may have
        declared.
        """
        done, store = Reconciliation([], [], [], [], []), self._app_store.store
        for job_id, make in self._declared.items():
            fresh = make()
            if store.sign_anew(fresh):
                done.updated.append(job_id)
                continue
            known = store.lookup_job(job_id)
            if known is None:
                if (old := self._renamed(job_id)) is not None:
                    kept = self._renewed(old, ALIAS, fresh)  # so that no fire is lost or doubled
                    for field in ("trigger", "at", "nominal", "overridden"):
                        setattr(fresh, field, getattr(kept, field))
                    fresh.timed = True
                try:
                    self.put(fresh)
                    done.added.append(job_id)
                except ConflictingIdError:  # another node added it first, or it is set aside
                    done.unchanged.append(job_id)
            elif known.declared == fresh.declared:
                done.unchanged.append(job_id)
            elif known.declared is None:
                log.warning("job %r was added by hand; the schedule with that id in the code is ignored", job_id)
                done.unchanged.append(job_id)
            else:
                self._change(job_id, None, partial(self._renewed, fresh=fresh))
                done.updated.append(job_id)
        self._report_gone(done, remove)
        return done

    def differences(self) -> _Differences:
        """Return the differences between the schedules in the code and those in the store, field by field.

        Without the code, as with a URL alone, return the changes made by hand since the declaration.
        """
        stored = {job.id: job for job in self.list()}
        found: _Differences = []
        for job_id, make in self._declared.items():
            fresh, job = make(), stored.get(job_id)
            if job is None:
                found.append(Difference(job_id, SCHEDULE, fresh.trigger, None))
            else:
                found += differences(job, declared_values(fresh))
        for job in stored.values():
            if self.is_gone(job):
                if self._declared:  # without declarations, this process has no code to compare with
                    found.append(Difference(job.id, SCHEDULE, None, job.trigger))
                found += differences(job, declared_values(job))
        changed_by = {job_id: self._changed_by(job_id) for job_id in {each.job for each in found} & stored.keys()}
        return [each._replace(**changed_by.get(each.job, {})) for each in found]

    def _changed_by(self, job_id: str) -> dict[str, Any]:
        """Return who changed a job last and when, as far as the audit goes back."""
        acts = self._app_store.acts.acts_on("job", job_id, 20)
        last = next((act for act in acts if act.verb in ("modify_job", "reschedule_job")), None)
        return {} if last is None else {"by": last.by, "at": last.at}

    def adopt(self, job: str | Job, source: str = "code") -> Job:
        """Restore the values in the code for a job that was changed by hand; a paused job stays paused.

        If this process lacks the code, restore the last declaration. Raise ValueError for a job that no code declares.
        """
        if source != "code":
            raise ValueError(f"a job can adopt only the code: write adopt(job, 'code'), not {source!r}")
        make = self._declared.get(self._id_of(job))
        fresh = None if make is None else make()

        def change(job: Job, alias: str) -> Job:
            if fresh is None and job.declared is None:
                raise ValueError(f"job {job.id!r} was added by hand: no code declares it")
            declared = declared_values(job if fresh is None else fresh)
            changed = job.copy()
            changed.overridden = {}
            for name, value in declared.items():
                if name != "trigger":
                    setattr(changed, name, value)
            if fresh is not None:
                changed.declared = fresh.declared
            if not is_same_trigger(declared["trigger"], job.trigger):
                changed.trigger = declared["trigger"]
                if job.at is not None:
                    self._time(changed, alias)
            return changed

        return self._change(job, None, change, "adopt")

    def declare_again(self) -> None:
        """Add the declared schedules that the store has lost; leave the others alone."""
        store = self._app_store.store
        for job_id, make in self._declared.items():
            if store.lookup_job(job_id) is None:
                try:
                    self.put(make())
                except ConflictingIdError:  # another node added it first, or only other processes can read it
                    continue
                log.warning("schedule %r was lost with the store's data and is declared again", job_id)

    def _renewed(self, job: Job, alias: str, fresh: Job) -> Job:
        changed = job.copy()
        for name in ("call", "queue", "policy", "declared", *FIRING_FIELDS):
            setattr(changed, name, getattr(fresh, name))
        changed.overridden = {name: value for name, value in job.overridden.items() if name == "trigger"}
        if str(fresh.declared).partition(".")[0] != str(job.declared).partition(".")[0]:
            changed.trigger, changed.overridden = fresh.trigger, {}
            if job.at is not None:  # a paused job stays paused
                self._time(changed, alias)
        return changed

    def _renamed(self, job_id: str) -> Job | None:
        """Return the schedule that is stored under a former name of its task, as the task's aliases say; else None."""
        task = self._tasks.get(job_id)
        found = (self._app_store.store.lookup_job(alias) for alias in (() if task is None else task.aliases))
        return next((job for job in found if job is not None and job.declared is not None), None)

    def _is_elsewhere(self, job: Job) -> bool:
        """Return True if a job calls a function outside the packages of this app's tasks: another app may own it."""
        module, colon, _ = job.call.task_name.partition(":")
        own: dict[str, list[str]] = {}
        for task in self._tasks:
            if not task.name.startswith("mainspring:"):
                for place in (task.name.partition(":")[0], module_of(task.func)):
                    package = place.rpartition(".")[0] or place
                    own.setdefault(package.partition(".")[0], []).append(package)
        packages = own.get(module.partition(".")[0])
        if not colon or not own or packages is None:
            return bool(colon and own)
        words = [package.split(".") for package in packages]
        shared = [each[0] for each in takewhile(lambda each: len(set(each)) == 1, zip(*words, strict=False))]
        return module.split(".")[: len(shared)] != shared

    def _report_gone(self, done: Reconciliation, remove: bool) -> None:
        for job in filter(self.is_gone, self.list()):
            task = self._tasks.get(job.id)
            if task is not None and task.name in self._declared and job.id in task.aliases:
                self.remove(job)
                log.info("schedule %r is now called %r", job.id, task.name)
                continue
            if self._is_elsewhere(job):
                done.others.append(job.id)
                log.warning(
                    "schedule %r is in the store, and code of other packages declared it; if that is another app's, "
                    "give each a name= of its own, and if that code is gone: mainspring jobs remove %s",
                    job.id,
                    job.id,
                )
                continue
            done.gone.append(job.id)
            if remove:
                self.remove(job)
                log.warning("schedule %r is no longer declared in the code and was removed", job.id)
            else:
                log.warning(
                    "schedule %r is no longer declared in the code but is still in the store and goes on; "
                    "app.reconcile(remove=True) removes it",
                    job.id,
                )


def _digest(*said: Any) -> str:
    return hashlib.sha256(repr(said).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _shown(value: Any) -> str:
    """Return a value as text that is the same in every process."""
    if isinstance(value, BaseTrigger):
        return repr(without_start(value.to_data()))
    if isinstance(value, Exclusions):
        return repr(value.to_data())
    if callable(value):
        return reference_of(value)
    return repr(value)
