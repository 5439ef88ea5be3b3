"""The front door: `Mainspring` declares tasks and schedules, enqueues calls, and starts and stops a node on a store.

Its parts are `app.runs`, `app.jobs`, `app.queues` and `app.tasks`. Short verbs such as `app.find` call these parts.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, tzinfo
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeVar, overload

from mainspring.app.declaring.dependencies import RESOURCE_MARK, inject
from mainspring.app.declaring.habits import (
    APP_ARGUMENT_HABITS,
    APP_HABITS,
    START_HABITS,
    attributes_elsewhere,
    named_arguments,
)
from mainspring.app.declaring.lifespan import Lifespan
from mainspring.app.declaring.schedules import Reconciliation
from mainspring.app.declaring.task import (
    CoroutineTask,
    Options,
    Task,
    TaskCall,
    TaskDecorator,
    make_options,
    reference_of,
)
from mainspring.app.declaring.validating import make_validator
from mainspring.app.enqueuing.admission import check_patterns
from mainspring.app.enqueuing.enqueue import Calls, check_call
from mainspring.app.fleet import Fleet
from mainspring.app.flows.bridging import Bridging
from mainspring.app.flows.flow import Flows
from mainspring.app.flows.shapes import Shapes, collect, join
from mainspring.app.flows.storing import FlowWriter
from mainspring.app.handle import RunHandle
from mainspring.app.insight.acting import Acting, Marks
from mainspring.app.insight.bulk import BulkActions
from mainspring.app.insight.changes import ChangeWatch
from mainspring.app.insight.flows import FlowGraphs
from mainspring.app.insight.insight import Insight
from mainspring.app.insight.numbers import Numbers
from mainspring.app.introduction import hint_at_log, one_line
from mainspring.app.jobs import Jobs
from mainspring.app.loading.import_guard import refuse_to_run, refuse_to_start
from mainspring.app.loading.including import alias_main, import_included, warn_of_forgotten
from mainspring.app.middleware import SIGNALS, Middleware
from mainspring.app.moving.mover import Moved, move_store
from mainspring.app.participation import Participation
from mainspring.app.placement import Workplace
from mainspring.app.queues import Queues
from mainspring.app.registry import Registry
from mainspring.app.runs import Runs
from mainspring.app.store import AppStore
from mainspring.app.waiting.held_slots import HeldSlots
from mainspring.clock import Clock, SystemClock
from mainspring.codec import Codec
from mainspring.core.quantities import check_lease
from mainspring.core.references import iscoroutinefunction_partial
from mainspring.core.run import Status
from mainspring.core.showing.redaction import without_password
from mainspring.core.showing.run_view import RunView
from mainspring.core.waiting.flows import BRIDGE_TASK, COLLECT_TASK, JOIN_TASK
from mainspring.errors import ConfigurationError, RunCancelled, RunFailed, near
from mainspring.events import EVENT_ALL
from mainspring.executors.current_run import CurrentRun
from mainspring.jobstores.base import BrokenJob, JobStore
from mainspring.jobstores.health import check_requirement
from mainspring.node.events.awaiting import Awaiter
from mainspring.node.events.listeners import Listeners
from mainspring.node.events.run_events import RunEvents
from mainspring.node.watch.alerts import AlertBook
from mainspring.node.watch.pings import Pinger

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.orm import Session

    from mainspring.aio import AsyncFace
    from mainspring.app.enqueuing.transactions import AfterCommit, Within
    from mainspring.app.inline import InlineRunner
    from mainspring.core.job import Job
    from mainspring.core.schedules.upcoming import Fire
    from mainspring.node.node import Node
    from mainspring.triggers.base import BaseTrigger

__all__ = ["Mainspring"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
Part = TypeVar("Part")
AnyType = TypeVar("AnyType", bound=type)

log = logging.getLogger("mainspring.app")


def _verb(part: str, verb: Callable[Concatenate[Part, P], R]) -> Callable[Concatenate[Mainspring, P], R]:
    """Turn a verb of a part into a short verb of the app; keep its signature, types and docstring."""
    name = verb.__name__

    @functools.wraps(verb)
    def call(app: Mainspring, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return getattr(getattr(app, part), name)(*args, **kwargs)  # type: ignore[no-any-return]

    return call


class Mainspring:
    """An app: tasks and schedules over one store.

    Creating an app opens nothing and starts nothing. Without a URL, it takes the one in `MAINSPRING_URL`, else
    `mainspring.db` in the current folder. Several apps can share a store under different names. With `require`
    (`"durable"` or `"replicated(n)"`), the app refuses to start on a store that promises less. `include` names modules
    with tasks and schedules, or patterns for them (`shop.reports.*`); the app imports them when it starts. With
    `log_runs=False`, the log leaves out runs that end well. `code` is the version of your code: nodes announce it, and
    charts mark the start of a new version. The dashboard shows `env` beside the name; with `production`, it asks before
    every action. `outbox` is the SQLAlchemy engine of the database whose transactions `within` joins, for a store in
    another database. `alerts` are URLs or functions to call when a job is in trouble: see `alert`.
    """

    @named_arguments(APP_ARGUMENT_HABITS)
    def __init__(
        self,
        url: str | JobStore | None = None,
        *,
        name: str = "mainspring",
        secret_key: str | bytes | Sequence[str | bytes] | None = None,
        timezone: tzinfo | str | None = None,
        allow_pickle: bool = False,
        inline: bool = False,
        queues: Iterable[str] = (),
        include: str | Iterable[str] = (),
        lease: float = 15.0,
        require: str | None = None,
        clock: Clock | None = None,
        store_options: Mapping[str, Any] | None = None,
        log_runs: bool = True,
        code: str = "",
        env: str = "",
        outbox: Engine | None = None,
        alerts: str | Callable[..., Any] | Iterable[Any] = (),
    ) -> None:
        self._lease = check_lease(lease)
        self.require = None if require is None else check_requirement(require)
        self._include = [include] if isinstance(include, str) else list(include)
        self._awaiter = Awaiter(lambda: self._participation.loop)
        self._listeners = Listeners(self._awaiter)
        self._middleware = Middleware(self._awaiter)
        self._lifespan = Lifespan(self._awaiter)
        self.events = RunEvents(self._listeners, zone=lambda: self.timezone)
        """Publishes the events about runs to the listeners of this app."""
        self._app_store = shared = AppStore(
            *(url, name, secret_key, allow_pickle, store_options, timezone),
            clock=clock or SystemClock(),
            events=self.events,
            make_companion=self._make_companion,
            outbox=None
            if outbox is None
            else import_module("mainspring.app.enqueuing.transactions").outbox_of(outbox, name),
        )
        self.url, self.name, self.inline = shared.url, shared.name, inline
        self.tasks = Registry(shared, functools.partial(Task, self))
        self.events.log.each_run, self.events.log.find = log_runs, self.tasks.function
        self._runs = Runs(
            shared.open,
            shared.now,
            lambda: shared.timezone,
            self.events,
            self.tasks,
            stop=shared.stop_run,
            explain=lambda run_id: self.insight.explain(run_id),
            record=shared.acts.record,
            outbox=lambda: shared.outbox,
            held=HeldSlots(lambda: self._participation.place),
        )
        self.jobs = Jobs(shared, self.tasks, lambda: self.runs, self._lease)
        self.queues = Queues(shared, lambda: self.runs, ("default", *queues))
        self.calls = Calls(shared, self.tasks, self._middleware, self.queues, self._runs)
        writer = FlowWriter(shared, self.calls)
        self.flows = Flows(shared, self.calls, writer, lambda: self.runs)
        self._shapes = Shapes(shared, self.calls, writer)
        cross = Bridging(shared, self._runs).cross
        for func, own in ((collect, COLLECT_TASK), (join, JOIN_TASK), (cross, BRIDGE_TASK)):
            self.tasks.add(Task(self, func, own, Options()))
        self.insight, self.acts = Insight(self), shared.acts
        self._graphs = FlowGraphs(self)
        self.numbers, self.bulks, self.watch = Numbers(self), BulkActions(self), ChangeWatch(self)
        self.code, self.env, self._marks = code, env, Marks(shared.acts, code)
        self._alerts, self._pinger = AlertBook(alerts), Pinger(self._listeners)
        self._participation = Participation(shared, self._listeners, self._lifespan)
        self._fleet = Fleet(shared, self._lease)
        self.task_defaults: Mapping[str, Any] = {}
        """The default options of all tasks; a task's own options win."""
        self.call_defaults: Mapping[str, Any] = {}
        """The default options of functions that are not tasks and are called through django-q's verbs."""
        self._face: AsyncFace | None = None
        self._off_loop: Callable[[Callable[[], Any]], Awaitable[Any]] | None = None

    # -- tasks and schedules -----------------------------------------------------------------------------------

    @overload
    def task(self, func: Callable[P, Coroutine[Any, Any, R]], /) -> CoroutineTask[P, R]: ...

    @overload
    def task(self, func: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        *,
        name: str | None = None,
        aliases: Iterable[str] = (),
        validate: bool | None = None,
        **options: Any,
    ) -> TaskDecorator: ...

    def task(
        self,
        func: Any = None,
        *,
        name: str | None = None,
        aliases: Iterable[str] = (),
        validate: bool | None = None,
        **options: Any,
    ) -> Any:
        """Register a function as a task; options set its defaults: `queue`, `retries`, `timeout`, `priority`, ...

        `aliases` are earlier names of the task, under which calls may still be stored. With `validate`, a call whose
        arguments do not fit the annotations is refused; without it, only annotations that are pydantic models count.
        """
        defaults = make_options(Options(), {**self.task_defaults, **options})

        def register(func: Callable[P, R]) -> Task[P, R]:
            if isinstance(func, Task):
                raise TypeError(f"{func!r} is a task already; put the options into one @app.task")
            if not callable(func):
                raise TypeError(f"a task is a function, not {func!r}; write @app.task or @app.task(queue=...)")
            kind = CoroutineTask if iscoroutinefunction_partial(func) else Task
            complete = inject(func, self._lifespan)
            check_patterns(defaults.admission, defaults.unique, complete)
            made: Task[P, R] = kind(self, complete, name or reference_of(func), defaults)
            made.validator = make_validator(complete, validate, self._app_store.types)
            self.tasks.add(made, [aliases] if isinstance(aliases, str) else tuple(aliases))
            self.queues.declared.setdefault(defaults.queue, None)
            self._forget_wrapped()
            return made

        return register if func is None else register(func)

    def schedule(self, trigger: BaseTrigger | str, *, id: str | None = None, **options: Any) -> Callable[[F], F]:
        """Run a function on a schedule: a crontab expression, a trigger, or a trigger's name and arguments.

        The decorator can stand above or below `@app.task`. When the app starts, it compares its declarations with the
        store.
        """
        if callable(trigger):
            raise TypeError('say when: @app.schedule("0 3 * * *") or @app.schedule("interval", minutes=5)')

        def declare(func: F) -> F:
            task = func if isinstance(func, Task) else self.task(func)
            self.jobs.declare(task, trigger, id, options)
            return func

        return declare

    # -- events and middleware ---------------------------------------------------------------------------------

    @overload
    def on(self, event: str | int) -> Callable[[F], F]: ...

    @overload
    def on(self, event: str | int, callback: F) -> F: ...

    def on(self, event: str | int, callback: Any = None) -> Any:
        """Call a function at `pre_enqueue`, `pre_execute`, `post_execute`, `post_spawn`, or for events in a mask."""
        if callback is None:
            return functools.partial(self.on, event)
        if isinstance(event, int):
            self._listeners.add(callback, event & EVENT_ALL)
        elif event in SIGNALS:
            self._middleware.add_signal(event, callback)
            self._forget_wrapped()
        else:
            raise ValueError(f"there is no event {event!r}{near(event, SIGNALS)}")
        return callback

    def alert(self, target: Any = None, /, **options: Any) -> Any:
        """Send an alert when a job is late, down or up again: to a URL, a `Webhook`, or the function this decorates.

        The fleet sends one alert for each change, and retries it if it fails. Options: `on` (states), `jobs` (patterns
        of job ids), `retries`, `name`; for a URL also `secret`, `timeout`, `headers` and `body`.
        """
        if target is None:
            return functools.partial(self.alert, **options)
        self._alerts.add(target, **options)
        return target

    def ping(self, url: str, jobs: str | Iterable[str]) -> None:
        """Call a URL after each success of these jobs (ids or patterns), so an external monitor notices silence."""
        self._pinger.add(url, jobs)

    def on_worker_start(self, func: F) -> F:
        """Call a function when this process begins to execute runs; if it raises, the worker does not start."""
        self._lifespan.on_start(func)
        return func

    def on_worker_stop(self, func: F) -> F:
        """Call a function when this process has executed its last run."""
        self._lifespan.on_stop(func)
        return func

    def resource(self, func: F) -> F:
        """Open a provider's value once per worker process, and share it among all tasks with `Needs(func)`."""
        setattr(func, RESOURCE_MARK, True)
        return func

    def middleware(self, func: F) -> F:
        """Put a function around every execution; it takes the run and the function to call next."""
        self._middleware.add(func)
        self._forget_wrapped()
        return func

    def wrapped(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function inside this app's middleware."""
        return self._middleware.around(func)

    def report(self, error: BaseException, run: CurrentRun | None) -> None:
        """Pass a failure to the error reporters that no middleware saw."""
        self._middleware.report(error, run)

    @property
    def needs_loop(self) -> bool:
        """Whether a listener, a signal or middleware is a coroutine function."""
        return self._middleware.needs_loop or self._listeners.need_loop or self._lifespan.needs_loop

    def _forget_wrapped(self) -> None:
        if self._participation.place is not None:
            self._participation.place.forget()
        self._app_store.forget_functions()

    # -- the store, codec and clock ----------------------------------------------------------------------------

    @property
    def inline(self) -> bool:
        """Whether calls are executed in the process that enqueues them."""
        return self._app_store.inline

    @inline.setter
    def inline(self, inline: bool) -> None:
        self._app_store.inline = inline

    @property
    def codec(self) -> Codec:
        """Turns arguments and results into signed bytes."""
        return self._app_store.codec

    @property
    def absent_key(self) -> Path | None:
        """The path of the SQLite database's key file if that is missing and the app has no other key; else None."""
        return self._app_store.absent_key

    @property
    def may_import(self) -> bool:
        """Whether unregistered names may be imported: with a key, or if no other process can write to the store."""
        return self._app_store.may_import

    @property
    def store(self) -> JobStore:
        """The store that all verbs act on; in inline mode, the store in memory whose runs are executed at once."""
        return self._app_store.store

    @property
    def timezone(self) -> tzinfo:
        """The zone in which times are read and shown; by default the machine's."""
        return self._app_store.timezone

    def now(self) -> int:
        """Return the store's time, as far as this process knows it."""
        return self._app_store.now()

    def register_type(
        self, cls: AnyType, *, dump: Callable[[Any], Any] | None = None, load: Callable[[Any], Any] | None = None
    ) -> AnyType:
        """Allow values of a type as arguments and results; can be used as a decorator.

        An Enum, dataclass, NamedTuple, attrs class or pydantic model needs this only without a key. Any other type
        needs `dump`, which turns a value into one that can be stored, and `load`, which turns that back.
        """
        self._app_store.types.register(cls, dump, load)
        return cls

    def _make_companion(self) -> InlineRunner:
        from mainspring.app.inline import InlineRunner

        return InlineRunner(self)

    # -- calls -------------------------------------------------------------------------------------------------

    def as_task(self, func: Any) -> Task[..., Any]:
        """Return the task registered under a name or a function, or make a task from any other allowed callable."""
        return self.tasks.resolve(func)

    @overload
    def enqueue(self, func: str, /, *args: Any, **kwargs: Any) -> RunHandle[Any]: ...

    @overload
    def enqueue(
        self, func: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> RunHandle[R]: ...

    @overload
    def enqueue(self, func: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]: ...

    def enqueue(self, func: Any, /, *args: Any, **kwargs: Any) -> RunHandle[Any]:
        """Enqueue a call of a task, or of any importable callable, for a worker."""
        return self.calls.enqueue_one(TaskCall(self.tasks.resolve(func), args, kwargs))

    def enqueue_call(self, call: TaskCall[R]) -> RunHandle[R]:
        """Enqueue a call made by `task.call(...)`."""
        return self.calls.enqueue_one(check_call(call))

    def enqueue_many(self, calls: Iterable[TaskCall[R]]) -> list[RunHandle[R]]:
        """Enqueue many calls, one round trip per thousand."""
        return self.calls.enqueue(calls)

    def again(
        self,
        run: str | RunHandle[Any],
        /,
        *,
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> RunHandle[Any]:
        """Enqueue the call of a run once more, with the given arguments and options in place of the old ones.

        The new run keeps the queue and the policy of the old run, and `copied_from` holds the old run's id. The runs
        after the old run do not come after the new one.
        """
        return self.calls.again(self.runs.read(run), args, kwargs, options)

    flow = _verb("flows", Flows.new)
    get_flow = _verb("flows", Flows.get)

    def chain(self, calls: Sequence[TaskCall[Any]], *, group: str | None = None) -> list[RunHandle[Any]]:
        """Enqueue calls that run one after another, each once the one before has succeeded; return their handles.

        In the arguments of a call, `mainspring.previous` stands for the result of the call before.
        """
        return self._shapes.chain(calls, group)

    @overload
    def gather(
        self, calls: Iterable[TaskCall[R]], *, return_exceptions: Literal[False] = False
    ) -> RunHandle[list[R]]: ...

    @overload
    def gather(
        self, calls: Iterable[TaskCall[R]], *, return_exceptions: bool
    ) -> RunHandle[list[R | RunFailed | RunCancelled]]: ...

    def gather(self, calls: Iterable[TaskCall[Any]], *, return_exceptions: bool = False) -> RunHandle[list[Any]]:
        """Enqueue calls, and a run that comes after all of them and returns the list of their results.

        If a call fails, so does the wait for the list; with `return_exceptions`, its error is an item of the list.
        """
        return self._shapes.gather(calls, return_exceptions)

    def within(self, target: Session | Connection) -> Within:
        """Return the verbs that enqueue inside your transaction, given as a SQLAlchemy Session or Connection.

        The runs exist if and only if the transaction commits. The store must be in the same database; for any other
        store, give the app an `outbox`.
        """
        from mainspring.app.enqueuing.transactions import Within  # it imports SQLAlchemy's ORM, which few need

        return Within(self._app_store, self.calls, self.tasks, target)

    def after_commit(self, session: Session) -> AfterCommit:
        """Return the verbs that enqueue once a SQLAlchemy session has committed, on any store.

        If the process dies just after the commit, the call is lost. `within` loses no call.
        """
        from mainspring.app.enqueuing.transactions import AfterCommit

        return AfterCommit(self, session)

    # -- runs, jobs, queues ------------------------------------------------------------------------------------

    @property
    def runs(self) -> Runs:
        """The verbs about runs; in inline mode, about the runs executed inline."""
        return self._app_store.companion.runs if self._app_store.inline else self._runs

    def handle(self, run_id: str) -> RunHandle[Any]:
        """Return a handle on a run by its id."""
        return RunHandle(self.runs, run_id)

    get = _verb("runs", Runs.get)
    find = _verb("runs", Runs.find)
    count = _verb("runs", Runs.count)
    wait = _verb("runs", Runs.wait)
    cancel = _verb("runs", Runs.cancel)
    search = _verb("runs", Runs.search)
    count_up_to = _verb("runs", Runs.count_up_to)
    recent = _verb("runs", Runs.recent)
    retry = _verb("runs", Runs.retry)
    signal = _verb("runs", Runs.signal)
    move = _verb("runs", Runs.move)
    postpone = _verb("runs", Runs.postpone)
    prioritize = _verb("runs", Runs.prioritize)
    delete = _verb("runs", Runs.delete)

    add_job = _verb("jobs", Jobs.add)
    get_job = _verb("jobs", Jobs.get)
    modify_job = _verb("jobs", Jobs.modify)
    reschedule_job = _verb("jobs", Jobs.reschedule)
    pause_job = _verb("jobs", Jobs.pause)
    resume_job = _verb("jobs", Jobs.resume)
    remove_job = _verb("jobs", Jobs.remove)
    run_now = _verb("jobs", Jobs.run_now)
    skip_next = _verb("jobs", Jobs.skip_next)
    fires = _verb("jobs", Jobs.fires)
    backfill = _verb("jobs", Jobs.backfill)
    differences = _verb("jobs", Jobs.differences)
    adopt = _verb("jobs", Jobs.adopt)

    pause_queue = _verb("queues", Queues.pause)
    resume_queue = _verb("queues", Queues.resume)
    limit_queue = _verb("queues", Queues.limit)
    set_limit = _verb("queues", Queues.set_limit)
    limits = _verb("queues", Queues.key_limits)
    purge = _verb("queues", Queues.purge)

    explain = _verb("insight", Insight.explain)
    story = _verb("insight", Insight.story)
    health = _verb("insight", Insight.health)
    healths = _verb("insight", Insight.healths)
    simulate = _verb("insight", Insight.simulate)
    audit = _verb("acts", Acting.audit)
    mark = _verb("_marks", Marks.mark)
    marks = _verb("_marks", Marks.marks)
    errors = _verb("numbers", Numbers.errors)
    error = _verb("numbers", Numbers.error)
    metrics = _verb("numbers", Numbers.metrics)
    task_figures = _verb("numbers", Numbers.task_figures)
    store_figures = _verb("numbers", Numbers.store_figures)
    lost_nodes = _verb("numbers", Numbers.lost_nodes)
    eta = _verb("numbers", Numbers.eta)
    flow_graph = _verb("_graphs", FlowGraphs.flow_graph)
    flow_graphs = _verb("_graphs", FlowGraphs.flow_graphs)
    apply = _verb("bulks", BulkActions.apply)
    bulk = _verb("bulks", BulkActions.bulk)
    stop_bulk = _verb("bulks", BulkActions.stop_bulk)
    changes = _verb("watch", ChangeWatch.changes)
    nodes = _verb("_fleet", Fleet.nodes)
    quiet_node = _verb("_fleet", Fleet.quiet_node)
    resume_node = _verb("_fleet", Fleet.resume_node)
    stop_node = _verb("_fleet", Fleet.stop_node)

    def acting(self, by: str | None = None, why: str = "") -> AbstractContextManager[None]:
        """Act in somebody's name and say why: `with app.acting("ann", "the provider is down"): ...`."""
        return self.acts.acting(by, why)

    if not TYPE_CHECKING:
        preview = _verb("jobs", Jobs.preview)
    else:  # ParamSpec keeps only the first of several overloads

        @overload
        def preview(
            self, job: str | Job, n: int = 10, jobstore: str | None = None, *, notes: Literal[False] = False
        ) -> list[datetime]: ...

        @overload
        def preview(
            self, job: str | Job, n: int = 10, jobstore: str | None = None, *, notes: Literal[True]
        ) -> list[Fire]: ...

        def preview(self, job: Any, n: int = 10, jobstore: str | None = None, *, notes: bool = False) -> Any:
            """Return a job's next `n` fire times."""

    def declared_queues(self) -> list[str]:
        """Return the queues that this app's tasks use, and those given to the app."""
        return list(self.queues.declared)

    def load(self, include: Iterable[str] = ()) -> None:
        """Import the modules that `include` names, and those given here; `start` does this first."""
        alias_main(self)
        # Do not hold the app's lock: another thread may need it inside a module that it is importing.
        import_included([*self._include, *include])

    def reconcile(self, remove: bool = False) -> Reconciliation:
        """Bring the store in line with the schedules in the code; with `remove`, remove those gone from the code.

        A schedule of a function outside the packages of this app's tasks stays, because another app may own it.
        """
        self.load()
        return self.jobs.reconcile(remove)

    # -- counters and broken records ---------------------------------------------------------------------------

    def hand_over_sums(self) -> None:
        """Add the counters of this process to those of the store now; a node does this with every heartbeat."""
        self._app_store.hand_over_sums()

    def counters(self) -> dict[str, int]:
        """Return how many runs have ever ended in each status, and how many jobs there are."""
        stats = self.store.stats()
        return {**stats.totals, "jobs": stats.jobs}

    def broken(self) -> list[BrokenJob | RunView]:
        """Return the jobs and runs that were set aside, with the reason."""
        return [*self.store.get_jobs(broken=True).broken, *self.find(status="broken")]

    def restore(self, record_id: str) -> bool:
        """Put back a job or run that was set aside; return False if there is none with that id.

        Raise ConflictingIdError if another job has taken the id meanwhile: remove that one, or `discard` this one.
        """
        if self.store.set_aside(record_id, 0, None):
            return True
        found = self.store.get_runs([record_id])[0]
        if found is None:
            return False
        self.retry(record_id)
        return True

    def discard(self, record_id: str) -> bool:
        """Permanently delete a job or run that was set aside; return False if there is none with that id."""
        if self.store.remove_jobs([record_id], broken=True):
            return True
        found = self.store.get_runs([record_id])[0]
        return found is not None and found.status is Status.BROKEN and self.delete(record_id)

    @property
    def aio(self) -> AsyncFace:
        """The same verbs as coroutines."""
        from mainspring.aio import AsyncFace

        face = self._face
        if face is None or face.pid != os.getpid():  # threads do not survive a fork
            face = self._face = AsyncFace(self, self._off_loop)
        return face

    def call_off_loop_by(self, off_loop: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        """Make the blocking calls of async code through this function, instead of a thread pool."""
        self._off_loop = self._runs.off_loop = off_loop
        self._face = None

    def asgi(self, **options: Any) -> Any:
        """Return the dashboard as an ASGI app to serve or mount; `mainspring.dashboard` documents the options."""
        # Import it by name: the dashboard is a layer above the app, and needs an extra.
        return import_module("mainspring.dashboard").DashboardApp(self, **options)

    def wsgi(self, **options: Any) -> Any:
        """Return the dashboard as a WSGI app to mount; the options are those of `asgi`."""
        return import_module("mainspring.dashboard.wsgi").DashboardWSGI(self.asgi(**options))

    # -- life --------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether the app is started in this process."""
        return self.node is not None

    @property
    def node(self) -> Node | None:
        """The node of this process while the app is started."""
        return self._participation.node

    @property
    def lease(self) -> float:
        """A claim ends after this many seconds unless it is renewed."""
        return self._lease

    @named_arguments(START_HABITS)
    def start(
        self,
        work: bool = False,
        *,
        schedule: bool = True,
        queues: Mapping[str, int | None] | Iterable[str] | None = None,
        threads: int = 8,
        place: Workplace | None = None,
        watcher: Any = None,
    ) -> None:
        """Start in the background: fire due jobs, and with `work` also execute the runs of queues.

        You can call this in every process of a web server: each fire happens once, in one of the processes.
        """
        refuse_to_start()
        self.load()
        if work and watcher is None:
            warn_of_forgotten(self)
        place = (place or Workplace(self, threads=threads)) if work else None
        served = self.queues.to_serve(queues) if work else {}
        node = self._participation.begin(self, served, place, schedule=schedule, watcher=watcher, alerts=self._alerts)
        self._marks.mark_new_code()
        if place is not None and place.worker_name is not None:
            self._middleware.emit("post_spawn", place.worker_name)
        self._participation.start(node)
        # The sentinel logs this once for all its worker processes.
        level = logging.INFO if watcher is None else logging.DEBUG
        if log.isEnabledFor(level):
            log.log(level, "%s", one_line(self, tuple(node.queues or ()), node.id))

    def move_to(self, target: Mainspring, *, history: bool = True, wait: bool = False) -> Moved:
        """Move jobs and waiting runs to the store of another app, and copy ended runs, while nodes work on both.

        If it is interrupted, call it again: no job or run is lost or doubled. With `wait`, wait until no run is running
        on this app's store.
        """
        same = (str(self.url), self.name) == (str(target.url), target.name) and not self.store.volatile
        if same or self.store is target.store:
            raise ConfigurationError("both apps have the same store")
        return move_store(self.store, target.store, history=history, wait=wait)

    drain = _verb("_participation", Participation.drain)
    stop = _verb("_participation", Participation.stop)
    close = _verb("_participation", Participation.close)

    def run(self, **options: Any) -> None:
        """Fire schedules and execute runs in the foreground until SIGINT, SIGTERM or `stop()`; then drain.

        Only the main thread gets signals: in any other thread, the app runs until `stop()`.
        """
        refuse_to_run()
        hint_at_log()
        self._participation.run(functools.partial(self.start, work=True, **options), self.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if not self._participation.is_caller():  # a task that uses `with app:` must not stop its own worker
            self.close()

    if not TYPE_CHECKING:  # a type checker would believe that an app has every attribute
        __getattr__ = attributes_elsewhere(APP_HABITS)

    def __repr__(self) -> str:
        return f"<Mainspring {without_password(self.url) if isinstance(self.url, str) else self.url!r}>"
