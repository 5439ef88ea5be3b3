"""The backend of Django's `@task`: `TASKS = {"default": {"BACKEND": "mainspring.django.backend.MainspringBackend"}}`.

It works with `django.tasks` (Django 6) and with its backport, the package `django-tasks`, on Django 5.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final

try:
    from django.tasks import Task, TaskContext, TaskResult, TaskResultStatus
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ImportError:
    from django_tasks import TaskContext, TaskResult, TaskResultStatus
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskError
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started

from mainspring.app.declaring.task import Options, TaskCall, make_options
from mainspring.app.declaring.task import Task as MainspringCall
from mainspring.core.instants import from_us
from mainspring.core.references import complaint_about, ref_to_obj
from mainspring.core.run import Call, Run, Status
from mainspring.errors import RunNotFound
from mainspring.executors.current_run import CURRENT
from mainspring.node.new_ids import new_run_id

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = [
    "InvalidTask",
    "MainspringBackend",
    "MainspringTask",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "task_enqueued",
    "task_finished",
    "task_started",
]

_STATUS: Final = {
    Status.BLOCKED: TaskResultStatus.READY,
    Status.PENDING: TaskResultStatus.READY,
    Status.RUNNING: TaskResultStatus.RUNNING,
    Status.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
}
_POLICY: Final[tuple[str, ...]] = ("retries", "backoff", "timeout", "retention", "unique", "group")


@dataclass(frozen=True, slots=True, kw_only=True)
class MainspringTask(Task):
    """A Django task with our options: `@task(retries=5, backoff="exponential", timeout=30, unique="key")`.

    A run stores the task's module path. A worker finds the task there and calls it.
    """

    retries: int | None = None
    backoff: Any = None
    timeout: float | None = None
    retention: float | None = None
    unique: str | None = None
    group: str | None = None

    def __new__(cls, *, func: Any = None, **fields: Any) -> MainspringTask:
        """Make a task that is a coroutine function if its function is one, so that a worker awaits it on its loop."""
        return object.__new__(_AsyncMainspringTask if iscoroutinefunction(func) else MainspringTask)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function; in a worker, as the current run."""
        execution = _Execution.begin(self)
        if execution is None:
            return self.func(*args, **kwargs)
        with execution:
            execution.value = self.func(*execution.leading, *args, **kwargs)
        return execution.value

    def options(self) -> dict[str, Any]:
        """Return the options of the task's runs, under our names."""
        given = {name: getattr(self, name) for name in _POLICY if getattr(self, name) is not None}
        return {**given, "queue": self.queue_name, "priority": self.priority, "at": self.run_after}

    def using(self, **changes: Any) -> Any:
        """Return the task with some options changed, Django's or ours."""
        ours = {name: changes.pop(name) for name in _POLICY if name in changes}
        # Not super(): a dataclass with slots is made twice, and super() would refer to the first class.
        made = Task.using(self, **changes)
        return made if not ours else _replaced(made, ours)


@dataclass(frozen=True, slots=True, kw_only=True)
class _AsyncMainspringTask(MainspringTask):
    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        execution = _Execution.begin(self)
        if execution is None:
            return await self.func(*args, **kwargs)
        with execution:
            execution.value = await self.func(*execution.leading, *args, **kwargs)
        return execution.value


def _replaced(task: Any, changes: Mapping[str, Any]) -> Any:
    fields = {name: getattr(task, name) for name in task.__dataclass_fields__}
    return type(task)(**{**fields, **changes})


class _Execution:
    """One attempt in a worker: it passes the context to the function, and sends Django's signals."""

    def __init__(self, task: MainspringTask, run: Run) -> None:
        self._backend, self._task, self._run = task.get_backend(), task, run
        self.value: Any = None
        self.result = self._backend.make_result(run, task)
        self.leading = (TaskContext(task_result=self.result),) if task.takes_context else ()

    @classmethod
    def begin(cls, task: MainspringTask) -> _Execution | None:
        """Return the execution of the current run; None if the task is called outside a worker."""
        found = CURRENT.get()
        return None if found is None else cls(task, found[0])

    def __enter__(self) -> None:
        task_started.send(type(self._backend), task_result=self.result)

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        run = self._run
        if error is not None and run.failures < run.policy.retries:
            return  # it will be retried
        status = TaskResultStatus.SUCCESSFUL if error is None else TaskResultStatus.FAILED
        object.__setattr__(self.result, "status", status)
        if error is None:
            object.__setattr__(self.result, "_return_value", self.value)
        task_finished.send(type(self._backend), task_result=self.result)


class MainspringBackend(BaseTaskBackend):
    """A backend that stores calls of Django tasks as runs, inside the caller's transaction if there is one."""

    task_class = MainspringTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def app(self) -> Mainspring:
        """The project's app."""
        # Resolve on first use: tasks are declared while Django loads the apps, when models must not be imported.
        from mainspring.django import app as project

        return project.app

    def validate_task(self, task: Any) -> None:
        """Raise if a worker could not execute the task, or if one of our options has a bad value."""
        super().validate_task(task)
        if isinstance(task, MainspringTask):
            try:
                make_options(Options(), {**task.options(), "at": None})
            except (TypeError, ValueError) as error:
                raise InvalidTask(str(error)) from error

    def enqueue(self, task: Any, args: Iterable[Any], kwargs: Mapping[str, Any]) -> Any:
        """Store the call as a run; return its result object."""
        self.validate_task(task)
        args, kwargs, run_id = tuple(args), dict(kwargs), new_run_id()
        target = partial(task.func, None) if task.takes_context else task.func
        complaint = complaint_about.__wrapped__(target, len(args), tuple(kwargs))
        if complaint:
            raise TypeError(complaint)
        reference = f"{task.func.__module__}:{task.func.__qualname__}"
        # Make the result first: it refuses arguments that Django does not allow.
        result = self.make_result(Run(run_id, Call(reference, args, kwargs), created_at=self.app.now()), task)
        options = make_options(Options(id=run_id, name=task.func.__name__), task.options())
        call: Any = MainspringCall(self.app, task, reference, options)
        handle = self.app.enqueue_call(TaskCall(call, args, kwargs))
        if handle.id != run_id or self.app.inline:  # a run with this unique key waits already, or it has ended
            result = self.make_result(handle.fetch().record, task)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """Return the result of a run of a task; raise TaskResultDoesNotExist if there is none with this id."""
        try:
            run = self.app.get(result_id).record
            task = ref_to_obj(run.call.task_name)
        except (RunNotFound, LookupError, ValueError) as error:
            raise TaskResultDoesNotExist(result_id) from error
        if not isinstance(task, Task):
            raise TaskResultDoesNotExist(f"{result_id} is a run of {run.call.task_name}, which is not a Django task")
        return self.make_result(run, task)

    def make_result(self, run: Run, task: Any) -> Any:
        """Return a run as Django's result object."""
        result = TaskResult(
            task=task,
            id=run.id,
            status=_STATUS.get(run.status, TaskResultStatus.FAILED),
            enqueued_at=from_us(run.created_at),
            started_at=_first_start(run),
            finished_at=_moment(run.finished_at),
            last_attempted_at=_moment(run.started_at),
            args=list(run.args),
            kwargs=dict(run.kwargs),
            backend=self.alias,
            errors=[
                TaskError(exception_class_path=_class_path(each.type), traceback=each.traceback) for each in run.errors
            ],
            worker_ids=[run.node or ""] * run.attempt,
        )
        if run.status is Status.SUCCEEDED:
            object.__setattr__(result, "_return_value", run.result)
        return result


def _moment(instant: int | None) -> datetime | None:
    return None if instant is None else from_us(instant)


def _first_start(run: Run) -> datetime | None:
    starts = [start.started_at for start in run.starts if start.started_at is not None]
    return _moment(starts[0] if starts else run.started_at)


def _class_path(name: str) -> str:
    """Return the path by which Django imports an exception: our name omits `builtins`."""
    return name if "." in name else f"builtins.{name}"
