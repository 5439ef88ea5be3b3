"""A task: a function that an app knows by name, the options of its calls, and a call as an object."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Protocol, TypeVar, overload

import msgspec

from mainspring.app.declaring.habits import TASK_HABITS, attributes_elsewhere, option_hint, unknown_option
from mainspring.app.declaring.validating import Validator
from mainspring.app.enqueuing.admission import ADMISSION_OPTIONS, Admission, check_patterns, make_admission
from mainspring.core.ids import check_name, check_run_id, check_text
from mainspring.core.job import Job
from mainspring.core.policy import DEFAULT_POLICY, Policy
from mainspring.core.quantities import LONGEST_DELAY_SECONDS
from mainspring.core.references import (
    complaint_about,
    get_callable_name,
    iscoroutinefunction_partial,
    module_of,
    ref_to_obj,
)
from mainspring.core.run import ON, After, Run
from mainspring.core.showing.redaction import masked_text
from mainspring.core.validation import POLICY_FIELDS, check_queue, make_policy
from mainspring.core.waiting.placeholders import merge_after
from mainspring.errors import ConfigurationError, near
from mainspring.jobstores.base import PackLike

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.app.handle import RunHandle
    from mainspring.app.registry import Registry

__all__ = [
    "OPTIONS",
    "CoroutineTask",
    "Options",
    "Task",
    "TaskCall",
    "TaskDecorator",
    "TaskReference",
    "edges_from",
    "job_id_of",
    "make_options",
    "reference_of",
]

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Options(msgspec.Struct, frozen=True):
    """The options of one enqueued call, besides its policy."""

    queue: str = "default"
    policy: Policy = DEFAULT_POLICY
    name: str | None = None
    group: str | None = None
    unique: str | None = None
    delay: float | None = None
    at: datetime | None = None
    id: str | None = None
    shard: str | None = None
    inline: bool = False
    after: tuple[After, ...] = ()
    admission: Admission | None = None


_OWN: Final = frozenset(Options.__struct_fields__) - {"policy", "admission"}
OPTIONS: Final = POLICY_FIELDS | _OWN | ADMISSION_OPTIONS | {"on"}
"""The names of all options."""


def make_options(base: Options, changes: Mapping[str, Any]) -> Options:
    """Return options with some of them changed; check each change."""
    if not changes:
        return base
    for name in changes:
        if name not in OPTIONS:
            raise unknown_option(name, OPTIONS)
    policy = {name: value for name, value in changes.items() if name in POLICY_FIELDS}
    own = {name: _checked(name, value) for name, value in changes.items() if name in _OWN and name != "after"}
    if "after" in changes:
        own["after"] = edges_from(changes["after"], changes.get("on", "success"))
    elif "on" in changes:
        raise ValueError("on= says how the runs in after= have to end; give after=, too")
    admission = {name: value for name, value in changes.items() if name in ADMISSION_OPTIONS}
    if admission:
        own["admission"] = make_admission(base.admission, admission)
    if own.get("delay") is not None and own.get("at") is not None:
        raise ValueError("delay= and at= both say when to start; give one of them")
    for name, other in (("delay", "at"), ("at", "delay")):
        if name in own:
            own.setdefault(other, None)  # the later option wins
    if policy:
        if "hook" in policy and policy["hook"] is not None and not isinstance(policy["hook"], str):
            policy["hook"] = reference_of(policy["hook"])
        own["policy"] = make_policy(base.policy, **policy)
    return msgspec.structs.replace(base, **own)


def edges_from(runs: Any, on: str) -> tuple[After, ...]:
    """Return the edges from some runs, given as handles, ids, or lists of both."""
    if on not in ON:
        raise ValueError(f"on= is one of {', '.join(map(repr, ON))}, not {on!r}{near(str(on), ON)}")
    return merge_after(After(run_id, ON[on]) for run_id in _ids_of(runs))


def _ids_of(runs: Any) -> Iterator[str]:
    if runs is None:
        return
    run_id = runs if isinstance(runs, str) else getattr(runs, "id", None)
    if isinstance(run_id, str):
        yield run_id
    elif isinstance(runs, Iterable):
        for each in runs:
            yield from _ids_of(each)
    else:
        raise TypeError(f"after= takes runs, as handles or ids, or a list of them, not {runs!r}")


def _checked(name: str, value: Any) -> Any:
    if name == "delay":
        if isinstance(value, timedelta):
            value = value.total_seconds()
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise TypeError(f"delay must be a number of seconds or a timedelta, not {value!r}")
        if value is not None and not 0 <= value <= LONGEST_DELAY_SECONDS:
            raise ValueError(f"delay must be between 0 and {LONGEST_DELAY_SECONDS:,} seconds, not {value!r}")
        return value
    if name == "at":
        if value is not None and not isinstance(value, datetime):
            raise TypeError(f"at must be a datetime, not {value!r}")
        return value  # a naive datetime is in the app's zone
    if name == "inline":
        return bool(value)
    if name == "queue":
        return check_queue(value)
    if value is None:
        return None
    check_name(name, value)
    return check_run_id(value) if name == "id" else check_text(name, value)


def reference_of(func: Any) -> str:
    """Return the name under which a function is stored: its task's name, or `module:qualified.name`."""
    if isinstance(func, str):
        return func if ":" in func else ":".join(func.rsplit(".", 1))
    if isinstance(func, Task):
        return func.name
    # `python app.py` and `mainspring worker app:app` must agree on the names of the tasks.
    return f"{module_of(func)}:{get_callable_name(func)}"


def job_id_of(job: Any) -> str:
    """Return the id of a job, given as a job, an id, or a task whose schedule has the task's name."""
    if isinstance(job, Job):
        return job.id
    if isinstance(job, Task):
        return job.name
    if not isinstance(job, str):
        raise ConfigurationError(f"a job is named by its id, not by {job!r}")
    return job


class RunPattern(msgspec.Struct):
    """A run without arguments, made with these options. Copies of it become the runs of calls with the same options."""

    maker: object
    options: Options
    run: Run
    packing: tuple[object, PackLike] | None = None
    """A store, and the function by which it packs runs like this one."""


class Task(Generic[P, R]):
    """A function that an app knows by name. Calling it is an ordinary call; `enqueue` leaves the call to a worker."""

    def __init__(self, app: Mainspring, func: Callable[P, R], name: str, options: Options) -> None:
        self.app = app
        self.func = func
        self.name = name
        self.defaults = options
        """The default options of calls of this task."""
        self.registry: Registry | None = None
        """The registry that knows the function by this name; a run stores the name."""
        self.aliases: tuple[str, ...] = ()
        """Earlier names of the task, under which calls may still be stored."""
        self.validator: Validator | None = None
        """Checks the arguments of each call, and converts them to the annotated types."""
        self.pattern: RunPattern | None = None
        """The pattern of the last run of this task; further runs are made from it."""
        self.is_async = iscoroutinefunction_partial(func)
        update_wrapper(self, func)
        self.__name__: str = getattr(func, "__name__", None) or get_callable_name(func)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now."""
        return self.func(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]:
        """Enqueue a call for a worker; return a handle on its run."""
        return self.app.calls.enqueue_one(TaskCall(self, args, kwargs))

    delay = enqueue

    def call(self, *args: P.args, **kwargs: P.kwargs) -> TaskCall[R]:
        """Return the call as an object, for `enqueue_many`, chains and `async_iter`."""
        return TaskCall(self, args, kwargs)

    def options(self, **changes: Any) -> Task[P, R]:
        """Return the task with some options changed: `delay`, `at`, `queue`, `priority`, `unique`, `after`, ..."""
        made = make_options(self.defaults, changes)
        if "unique" in changes or "limit_key" in changes:
            check_patterns(made.admission, made.unique, self.func)
        twin = type(self)(self.app, self.func, self.name, made)
        twin.registry, twin.validator = self.registry, self.validator
        return twin

    if not TYPE_CHECKING:  # a type checker would believe that a task has every attribute
        __getattr__ = attributes_elsewhere(TASK_HABITS)

    @property
    def import_name(self) -> str:
        """The name by which another process of this machine can import the task."""
        return f"{self.func.__module__}:{get_callable_name(self.func)}"

    def __mainspring_execute__(self) -> Callable[..., Any]:
        """Return the function that a worker calls: the task's, inside the app's middleware."""
        return self.app.wrapped(self.func)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


class TaskReference(str):
    """A task's name, and the places where a child process can find the task."""

    app: str | None
    """Where to import the app from, as `module:variable`; None if unknown."""
    import_name: str
    """The place of the function, for a child process in which no app has a task with this name."""

    def __new__(cls, name: str, app: str | None, import_name: str) -> TaskReference:
        self = super().__new__(cls, name)
        self.app, self.import_name = app, import_name
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.app, self.import_name)

    def __mainspring_execute__(self) -> Callable[..., Any]:
        """Find the task in this process, and return the function that a worker calls."""
        with suppress(LookupError):
            task = None if self.app is None else ref_to_obj(self.app).tasks.get(self)
            if task is not None:
                return task.__mainspring_execute__()  # type: ignore[no-any-return]
        found = ref_to_obj(self.import_name)
        return found.__mainspring_execute__() if isinstance(found, Task) else found


class CoroutineTask(Task[P, R]):
    """A task that is a coroutine function: a call returns a coroutine, a run has the coroutine's result."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:  # type: ignore[override]
            """Call the function here and now."""


class TaskDecorator(Protocol):
    """The decorator that `@app.task(...)` returns."""

    @overload
    def __call__(self, func: Callable[P, Coroutine[Any, Any, R]], /) -> CoroutineTask[P, R]: ...

    @overload
    def __call__(self, func: Callable[P, R], /) -> Task[P, R]: ...


class TaskCall(Generic[R]):
    """A call that can be enqueued: a task and arguments that match its signature."""

    __slots__ = ("args", "kwargs", "options", "task")

    def __init__(self, task: Task[Any, R], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        try:  # cached for calls of the same shape
            complaint = complaint_about(task.func, len(args), tuple(kwargs))
        except TypeError:  # not hashable
            complaint = complaint_about.__wrapped__(task.func, len(args), tuple(kwargs))
        if complaint:
            raise TypeError(complaint + option_hint(complaint, kwargs, OPTIONS))
        if task.validator is not None:
            args, kwargs = task.validator(args, kwargs)
        self.task, self.args, self.kwargs = task, args, kwargs
        self.options = task.defaults

    def after(self, *runs: Any, on: str = "success") -> TaskCall[R]:
        """Return the call with more runs to wait for, given as handles, ids or lists of both.

        `on` says how those runs have to end: `"success"` (the default), `"failure"`, or `"end"` for any end.
        """
        made = copy(self)
        after = merge_after((*self.options.after, *edges_from(runs, on)))
        made.options = msgspec.structs.replace(self.options, after=after)
        return made

    def __repr__(self) -> str:
        return f"<TaskCall {self.task.name}({masked_text(self.args, self.kwargs, self.task.func)})>"
