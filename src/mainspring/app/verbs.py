"""What an app can be asked, verb by verb: to enqueue calls; about runs, jobs, queues, nodes, broken records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar, overload

from mainspring.app.enqueue import Calls
from mainspring.app.handle import RunHandle
from mainspring.app.including import alias_main, import_included
from mainspring.app.jobs import JobsOfApp, Reconciled
from mainspring.app.registry import Registry, Task, TaskCall, check_queue, is_same, reference_of
from mainspring.app.runs import Runs
from mainspring.app.store import StoreOfApp
from mainspring.core.job import Job
from mainspring.core.policy import Policy
from mainspring.core.run import Status
from mainspring.core.run_view import RunPage, RunView
from mainspring.errors import ConfigurationError, JobLookupError, near
from mainspring.jobstores.base import BrokenJob, JobStore, NodeInfo, QueueInfo
from mainspring.node.run_events import RunEvents
from mainspring.util import undefined

if TYPE_CHECKING:
    from mainspring.triggers.base import BaseTrigger

__all__ = ["Verbs"]

log = logging.getLogger("mainspring.app")

P = ParamSpec("P")
R = TypeVar("R")


class _Wanted(TypedDict):
    """Which runs are wanted, besides their status and queue."""

    group: str | None
    job: str | None
    task: str | None
    since: datetime | timedelta | None


class Verbs(StoreOfApp):
    """The verbs that reach an app's store, each over the part that knows how; the app makes these parts."""

    inline: bool
    tasks: Registry
    _calls: Calls
    _include: list[str]
    _jobs: JobsOfApp
    _lease: float
    _queues: dict[str, None]
    _runs: Runs
    events: RunEvents
    """Tells the listeners of this app what happens to runs."""

    @property
    def store(self) -> JobStore:
        """The store that all verbs act on: in inline mode the one in memory whose runs are executed at once."""
        return self._calls.companion().store if self.inline else self.lasting_store

    # -- calls -------------------------------------------------------------------------------------------------

    def as_task(self, func: Any) -> Task[..., Any]:
        """Return what is registered under a name or a function, or a task made of any callable that may be called."""
        if isinstance(func, Task):
            return func
        known = self.tasks.get(reference_of(func))
        if known is not None and (isinstance(func, str) or is_same(known.func, func)):
            return known
        return self._calls.unregistered(func)

    def stored_func(self, task: Task[..., Any]) -> Any:
        """Return what a run of the task keeps as its callable: its name, or the object in a store of objects."""
        known = self.tasks.get(task.name)
        named = known is not None and is_same(known.func, task.func)
        return task.name if named or not self.keeps_objects else task.func

    @overload
    def enqueue(self, func: str, /, *args: Any, **kwargs: Any) -> RunHandle[Any]: ...

    @overload
    def enqueue(
        self, func: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> RunHandle[R]: ...

    @overload
    def enqueue(self, func: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]: ...

    def enqueue(self, func: Any, /, *args: Any, **kwargs: Any) -> RunHandle[Any]:
        """Have a task, or any importable callable, called by a worker."""
        return self._calls.enqueue_one(self.as_task(func).call(*args, **kwargs))

    def enqueue_call(self, call: TaskCall[R]) -> RunHandle[R]:
        """Enqueue a call made by `task.call(...)`."""
        return self._calls.enqueue_one(call)

    def enqueue_many(self, calls: Iterable[TaskCall[R]]) -> list[RunHandle[R]]:
        """Enqueue many calls, one round trip per thousand."""
        return self._calls.enqueue(calls)

    def chain(self, calls: Sequence[TaskCall[Any]], *, group: str | None = None) -> list[RunHandle[Any]]:
        """Enqueue calls to run one after another, each when the one before has succeeded; return their handles."""
        return self._calls.chain(calls, group)

    def gather(self, calls: Iterable[TaskCall[R]]) -> RunHandle[list[R]]:
        """Enqueue calls and a run that waits for all of them; its result is the list of theirs."""
        return self._calls.gather(calls)

    def check_policy(self, policy: Policy) -> None:
        """Raise if a worker could not call the hook or the back-off that a policy names."""
        self._calls.check_policy(policy)

    @property
    def keeps_objects(self) -> bool:
        """Whether calls are kept as they are, so that a callable without a name can be enqueued, too."""
        return self.store.keeps_objects

    def work_inline(self, run_ids: Sequence[str] = ()) -> None:
        """In inline mode execute what waits, and wait until these runs have ended."""
        if self.inline:
            self._calls.companion().work(run_ids)

    # -- runs --------------------------------------------------------------------------------------------------

    @property
    def runs(self) -> Runs:
        """The verbs about runs; in inline mode about those executed inline."""
        return self._calls.companion().runs if self.inline else self._runs

    def get(self, run_id: str) -> RunView:
        """Return a run; raise RunNotFound."""
        return self.runs.get(run_id)

    def handle(self, run_id: str) -> RunHandle[Any]:
        """Return a handle on a run of which only the id is known."""
        return RunHandle(self.runs, run_id)

    def find(
        self,
        *,
        status: str | Iterable[str] | None = None,
        queue: str | None = None,
        group: str | None = None,
        job: str | Job | None = None,
        task: Any = None,
        since: datetime | timedelta | None = None,
        limit: int = 100,
        after: RunView | None = None,
    ) -> RunPage:
        """Return the runs that match all that is given, newest first, up to `limit`; `.more` says if there are others.

        `task` is a task, a function or its name, `since` a datetime or how long ago, `after` the last run of the page
        before. Raise JobLookupError for a job that is not there and has left no runs.
        """
        wanted: _Wanted = {"group": group, "job": _job_or_none(job), "task": _task_or_none(task), "since": since}
        found = self.runs.find(status=status, queue=queue, limit=limit, after=after, **wanted)
        if not found and after is None:
            self._check_names(wanted)
        return found

    def count(
        self,
        *,
        status: str | Iterable[str] | None = None,
        queue: str | None = None,
        group: str | None = None,
        job: str | Job | None = None,
        task: Any = None,
        since: datetime | timedelta | None = None,
    ) -> int:
        """Return how many runs match all that is given, as for `find`."""
        wanted: _Wanted = {"group": group, "job": _job_or_none(job), "task": _task_or_none(task), "since": since}
        number = self.runs.count(status=status, queue=queue, **wanted)
        if not number:
            self._check_names(wanted)
        return number

    def _check_names(self, wanted: _Wanted) -> None:
        """Say so if no run was found because there is no such job or task."""
        job, task = wanted["job"], wanted["task"]
        if job is not None:
            try:
                self.get_job(job)
            except JobLookupError:
                # Asked after the job: one that has just fired for the last time is gone, and its run is there.
                if not self.runs.count(job=job):
                    raise
        known = {each.name for each in self.tasks} | {each.name.rpartition(":")[2] for each in self.tasks}
        if task is not None and task not in known and not self.runs.find(task=task, limit=1):
            # Only a warning: other processes may have tasks that this one has not imported.
            log.warning("this process knows no task %r, and no run of it is kept%s", task, near(task, known))

    def cancel(self, run: str | RunHandle[Any]) -> bool:
        """Cancel a run: at once if it waits, by stopping it if it runs. False if it has ended."""
        return self.runs.cancel(_id(run))

    def retry(self, run: str | RunHandle[Any]) -> None:
        """Send a failed, cancelled or broken run back to pending."""
        self.runs.retry(_id(run))
        self.work_inline()

    def delete(self, run: str | RunHandle[Any]) -> bool:
        """Delete a finished run."""
        return self.runs.delete(_id(run)) > 0

    def wait(self, handles: Iterable[str | RunHandle[Any]], timeout: float | None = None) -> list[RunView]:
        """Wait until all these runs have ended, however they did; raise TimeoutError."""
        return [self.runs.view(run) for run in self.runs.wait([_id(each) for each in handles], timeout)]

    # -- jobs --------------------------------------------------------------------------------------------------

    def add_job(
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
        job = self._jobs.make(func, trigger, args, kwargs, id, name, next_run_time, **options)
        return self._jobs.add(job, replace_existing)

    def jobs(self) -> list[Job]:
        """Return all jobs by next run time, paused ones last."""
        return self._jobs.all()

    def get_job(self, job_id: str) -> Job:
        """Return a job; raise JobLookupError."""
        return self._jobs.get(job_id)

    def modify_job(self, job: str | Job, /, **changes: Any) -> Job:
        """Change attributes of a job."""
        return self._jobs.modify_job(_job_id(job), None, **changes)

    def reschedule_job(self, job: str | Job, trigger: Any, /, **trigger_args: Any) -> Job:
        """Give a job another trigger."""
        return self._jobs.reschedule_job(_job_id(job), None, trigger, **trigger_args)

    def pause_job(self, job: str | Job) -> Job:
        """Stop a job from coming due."""
        return self._jobs.pause_job(_job_id(job))

    def resume_job(self, job: str | Job) -> Job | None:
        """Let a job come due again."""
        return self._jobs.resume_job(_job_id(job))

    def remove_job(self, job: str | Job, *, cancel_runs: bool = False) -> None:
        """Remove a job; with `cancel_runs` also cancel the runs it has made that have not ended."""
        self._jobs.remove_job(_job_id(job), cancel_runs=cancel_runs)

    def run_now(self, job: str | Job) -> RunHandle[Any]:
        """Make a run of a job at once, besides its schedule."""
        return self._jobs.run_now(_job_id(job))

    def skip_next(self, job: str | Job) -> Job:
        """Leave out a job's next fire."""
        return self._jobs.skip_next(_job_id(job))

    def preview(self, job: str | Job, n: int = 10) -> list[datetime]:
        """Return a job's next `n` fire times."""
        return self._jobs.preview(self.get_job(_job_id(job)), n)

    def load(self, include: Iterable[str] = ()) -> None:
        """Import the modules that `include` names, and more of them; `start` does this first."""
        alias_main(self)
        # Without the app's lock: a module that another thread imports may be waiting for it.
        import_included([*self._include, *include])

    def reconcile(self, remove: bool = False) -> Reconciled:
        """Bring the store in line with the schedules declared in code; those gone from it are removed on request."""
        self.load()
        return self._jobs.reconcile(remove)

    # -- queues, nodes, broken records -----------------------------------------------------------------------------

    def queues(self) -> list[QueueInfo]:
        """Return the queues that hold unfinished runs, are paused, or are declared by this app."""
        found = {info.name: info for info in self.store.queues() if not info.name.startswith(".")}
        return [found.get(name) or QueueInfo(name=name) for name in sorted({*found, *self._queues})]

    def pause_queue(self, name: str) -> None:
        """Hand out no runs of a queue until it is resumed."""
        self.store.set_queue(check_queue(name), paused=True)

    def resume_queue(self, name: str) -> None:
        """Hand out the runs of a queue again."""
        self.store.set_queue(check_queue(name), paused=False)
        self.work_inline()

    def purge(self, name: str) -> int:
        """Cancel all pending runs of a queue; return how many."""
        return self.runs.purge(check_queue(name))

    def nodes(self) -> list[NodeInfo]:
        """Return the nodes that are alive; one whose beats stay away has the state `silent`."""
        now = self.store.server_time()
        return [node.seen_at(now, self._lease) for node in self.store.nodes()]

    def counters(self) -> dict[str, int]:
        """Return how many runs have ever ended in each status, and how many jobs there are."""
        return self.store.counters()

    def broken(self) -> list[BrokenJob | RunView]:
        """Return the jobs and runs that were set aside, with the reason."""
        return [*self.store.broken(), *self.find(status="broken")]

    def restore(self, record_id: str) -> bool:
        """Put a job or run that was set aside back; False if there is none of that id.

        Raise ConflictingIdError if another job has taken the id meanwhile: remove that one, or `discard` this one.
        """
        if self.store.restore(record_id):
            return True
        found = self.store.get_runs([record_id])[0]
        if found is None:
            return False
        self.retry(record_id)
        return True

    def discard(self, record_id: str) -> bool:
        """Delete a job or run that was set aside, for good; False if there is none of that id."""
        if self.store.discard(record_id):
            return True
        found = self.store.get_runs([record_id])[0]
        return found is not None and found.status is Status.BROKEN and self.runs.delete(record_id) > 0


def _id(run: str | RunHandle[Any]) -> str:
    return run if isinstance(run, str) else run.id


def _job_or_none(job: str | Job | None) -> str | None:
    return None if job is None else _job_id(job)


def _task_or_none(task: Any) -> str | None:
    # A text may also be the function's name alone.
    return task if task is None or isinstance(task, str) else reference_of(task)


def _job_id(job: str | Job) -> str:
    if isinstance(job, Job):
        return job.id
    if isinstance(job, Task):
        return job.name
    if not isinstance(job, str):
        raise ConfigurationError(f"a job is named by its id, not by {job!r}")
    return job
