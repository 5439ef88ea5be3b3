"""Mainspring: the front door. Tasks and schedules, enqueue and look, start and stop; thin over a store and a node."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar, overload

from mainspring.appjobs import JobsOfApp, Reconciled
from mainspring.calls import Calls
from mainspring.clock import SECOND, Clock, SystemClock
from mainspring.codec import Codec
from mainspring.errors import ConfigurationError, SchedulerAlreadyRunningError, near
from mainspring.events import EVENT_ALL
from mainspring.follow import Finished
from mainspring.forking import check_threads, forget_in_children
from mainspring.handle import RunHandle
from mainspring.job import Job
from mainspring.jobstores.base import BrokenJob, JobStore, NodeInfo, QueueInfo
from mainspring.jobstores.health import check_requirement, enforce
from mainspring.keys import find_keyring
from mainspring.listeners import Listeners
from mainspring.middleware import SIGNALS, Middleware
from mainspring.node import Node
from mainspring.registry import (
    AsyncTask,
    Options,
    Registers,
    Registry,
    Task,
    TaskCall,
    check_queue,
    is_same,
    make_options,
    reference_of,
)
from mainspring.retry import Policy
from mainspring.run import Run
from mainspring.runs import Runs, RunView
from mainspring.task import iscoroutinefunction_partial
from mainspring.util import astimezone, undefined
from mainspring.working import Workplace

if TYPE_CHECKING:
    from mainspring.aio import AsyncFace
    from mainspring.triggers.base import BaseTrigger

__all__ = ["Mainspring"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

URL_VARIABLE: Final = "MAINSPRING_URL"
DEFAULT_URL: Final = "sqlite:///mainspring.db"
_OFFSET_AGE: Final = 60.0
"""Seconds for which this process trusts what it knows of the store's clock."""

log = logging.getLogger("mainspring.app")


class Mainspring:
    """An app: tasks and schedules over one store.

    Making one opens nothing and starts nothing. Without a URL, `MAINSPRING_URL` says where the store is, else it is
    `mainspring.db` in the current folder. Several apps share a store under different names. With `require`, `"durable"`
    or `"replicated(n)"`, it does not start on a store that gives less.
    """

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
        lease: float = 15.0,
        require: str | None = None,
        clock: Clock | None = None,
        store_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.url = url if url is not None else os.environ.get(URL_VARIABLE) or DEFAULT_URL
        self.name = name
        self.inline = inline
        self.tasks = Registry()
        self._runs = Runs(lambda: self.store, self.now, lambda: self.timezone, self._stop_here)
        self._given_keys, self._allow_pickle = secret_key, allow_pickle
        self._zone = astimezone(timezone)
        self._queues = {check_queue(queue): None for queue in ("default", *queues)}
        self._lease = lease
        self.require = None if require is None else check_requirement(require)
        self._clock = clock or SystemClock()
        self._store_options = dict(store_options or {})
        self._listeners = Listeners()
        self._middleware = Middleware()
        self._jobs = JobsOfApp(self, self._clock)
        self._calls = Calls(self)
        self._lock = threading.RLock()
        self._opened: JobStore | None = None
        self._codec: Codec | None = None
        self._offset = (0, -_OFFSET_AGE, 0)
        self._node: Node | None = None
        self._place: Workplace | None = None
        self._face: AsyncFace | None = None

    # -- tasks and schedules -----------------------------------------------------------------------------------

    @overload
    def task(self, func: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def task(self, func: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, *, name: str | None = None, **options: Any) -> Registers: ...

    def task(self, func: Any = None, *, name: str | None = None, **options: Any) -> Any:
        """Register a function as a task; options are its defaults: `queue`, `retries`, `timeout`, `priority`, ..."""
        defaults = make_options(Options(), options)

        def register(func: Callable[P, R]) -> Task[P, R]:
            if isinstance(func, Task):
                raise TypeError(f"{func!r} is a task already; put the options into one @app.task")
            if not callable(func):
                raise TypeError(f"a task is a function, not {func!r}; write @app.task or @app.task(queue=...)")
            kind = AsyncTask if iscoroutinefunction_partial(func) else Task
            made: Task[P, R] = kind(self, func, name or reference_of(func), defaults)
            self.tasks.add(made)
            self._queues.setdefault(defaults.queue, None)
            self._forget_wrapped()
            return made

        return register if func is None else register(func)

    def schedule(self, trigger: BaseTrigger | str, *, id: str | None = None, **options: Any) -> Callable[[F], F]:
        """Declare that a function runs by a schedule: a crontab expression, a trigger, or its name and arguments.

        Stacks with `@app.task`. Declarations are compared with the store when the app starts.
        """

        def declare(func: F) -> F:
            task = func if isinstance(func, Task) else self.task(func)
            self._jobs.declare(task, trigger, id, options)
            return func

        return declare

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

    # -- enqueue -----------------------------------------------------------------------------------------------

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
        return self._calls.enqueue([self.as_task(func).call(*args, **kwargs)])[0]

    def enqueue_call(self, call: TaskCall[R]) -> RunHandle[R]:
        """Enqueue a call made by `task.call(...)`."""
        return self._calls.enqueue([call])[0]

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
        return self.inline or self.store.keeps_objects

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
        job: str | None = None,
        limit: int = 100,
        after: RunView | None = None,
    ) -> list[RunView]:
        """Return the runs that match all that is given, newest first; `after` is the last one of the page before."""
        return self.runs.find(status=status, queue=queue, group=group, job=job, limit=limit, after=after)

    def count(
        self,
        *,
        status: str | Iterable[str] | None = None,
        queue: str | None = None,
        group: str | None = None,
        job: str | None = None,
    ) -> int:
        """Return how many runs match all that is given."""
        return self.runs.count(status=status, queue=queue, group=group, job=job)

    def cancel(self, run: str | RunHandle[Any]) -> bool:
        """Cancel a run: at once if it waits, by stopping it if it runs. False if it has ended."""
        return self.runs.cancel(_id(run))

    def retry(self, run: str | RunHandle[Any]) -> None:
        """Send a failed, cancelled or broken run back to pending."""
        self.runs.retry(_id(run))

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
        self._jobs.add(job, replace_existing)
        self.wake_for(job.at)
        return job

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

    def reconcile(self, remove: bool = False) -> Reconciled:
        """Bring the store in line with the schedules declared in code; those gone from it are removed on request."""
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

    def purge(self, name: str) -> int:
        """Cancel all pending runs of a queue; return how many."""
        return self.store.purge(check_queue(name))

    def nodes(self) -> list[NodeInfo]:
        """Return the nodes that are alive."""
        return self.store.nodes()

    def counters(self) -> dict[str, int]:
        """Return how many runs have ever ended in each status, and how many jobs there are."""
        return self.store.counters()

    def broken(self) -> list[BrokenJob | RunView]:
        """Return the jobs and runs that were set aside, with the reason."""
        return [*self.store.broken(), *self.find(status="broken")]

    def restore(self, record_id: str) -> bool:
        """Put a job or run that was set aside back; False if there is none of that id."""
        if self.store.restore(record_id):
            return True
        found = self.store.get_runs([record_id])[0]
        if found is None:
            return False
        self.retry(record_id)
        return True

    # -- events and middleware ---------------------------------------------------------------------------------

    @overload
    def on(self, event: str | int) -> Callable[[F], F]: ...

    @overload
    def on(self, event: str | int, callback: F) -> F: ...

    def on(self, event: str | int, callback: Any = None) -> Any:
        """Call a function at `pre_enqueue`, `pre_execute`, `post_execute`, `post_spawn`, or at events of a mask."""
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

    def middleware(self, func: F) -> F:
        """Put a function around every execution: it is called with the run and what to call next."""
        self._middleware.add(func)
        self._forget_wrapped()
        return func

    def wrapped(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function inside the middleware."""
        return self._middleware.around(func)

    def emit(self, name: str, *args: Any) -> None:
        """Call those who listen to a signal."""
        self._middleware.emit(name, *args)

    def _forget_wrapped(self) -> None:
        if self._place is not None:
            self._place.forget()
        self._calls.forget()

    # -- what the parts share ----------------------------------------------------------------------------------

    @property
    def timezone(self) -> tzinfo:
        """The zone in which times are read and shown: given, else the machine's."""
        if self._zone is None:
            from tzlocal import get_localzone

            self._zone = get_localzone()
        return self._zone

    @property
    def codec(self) -> Codec:
        """What turns arguments and results into signed bytes."""
        if self._codec is None:
            with self._lock:
                if self._codec is None:
                    url = self.url if isinstance(self.url, str) else "memory:" if self.url.volatile else None
                    keyring = find_keyring(self._given_keys, url)
                    self._codec = Codec(keyring, allow_pickle=self._allow_pickle, types=[Finished])
        return self._codec

    @property
    def may_import(self) -> bool:
        """Whether names that are not registered may be imported: with a key, or if nobody else can write the store."""
        return self.codec.signed or self.store.volatile

    @property
    def store(self) -> JobStore:
        """The store, made when it is first needed."""
        store = self._opened
        if store is None:
            with self._lock:
                store = self._opened
                if store is None:
                    store = self._opened = self._make_store()
        return store

    def _make_store(self) -> JobStore:
        if isinstance(self.url, JobStore):
            return self.url
        from mainspring.jobstores.opening import open_store

        scheme = self.url.partition(":")[0].partition("+")[0]
        if scheme == "memory":
            return open_store(self.url)
        options: dict[str, Any] = {"codec": self.codec, **self._store_options}
        if scheme in ("redis", "rediss", "unix"):
            options.setdefault("name", self.name)
        elif self.name != "mainspring" and scheme in ("sqlite", "postgresql", "postgres", "mysql", "mariadb"):
            options.setdefault("tablename", f"{self.name}_jobs")
        return open_store(self.url, **options)

    def now(self) -> int:
        """Return the store's time, as far as this process knows it."""
        if self.inline:
            return self._calls.companion().store.server_time()
        if self._node is not None:
            return self._node.links["default"].now()
        offset, known_at, _ = self._offset
        monotonic = asked = self._clock.monotonic()
        if monotonic - known_at >= _OFFSET_AGE:
            told = self.store.server_time()
            # Read after the answer, however long that took: behind the store's time nothing waits, ahead of it all do.
            monotonic = self._clock.monotonic()
            offset = told - int(monotonic * SECOND)
            self._offset = (offset, monotonic, int((monotonic - asked) * SECOND))
        return offset + int(monotonic * SECOND)

    @property
    def slack(self) -> int:
        """By how much the store's time may be ahead of what `now` last said: so long did the store take to tell it."""
        return self._offset[2] if self._node is None else self._node.links["default"].slack

    def _stop_here(self, run_id: str) -> None:
        """Stop a run that is to be cancelled at once if this process executes it; other nodes learn by their beat."""
        node = self._node
        for link in [] if node is None else list(node.links.values()):
            run = link.claims.get(run_id)
            if run is not None:
                link.stop_run(run)

    def wake_worker(self, runs: Sequence[Run]) -> None:
        """Have this process's own worker look for runs that were enqueued here; others are told by the store."""
        node = self._node
        if node is not None:
            for run in {run.queue: run for run in runs}.values():
                node.links["default"].worker.look(run.queue)

    def wake_for(self, at: int | None) -> None:
        """Have a job that is due at `at` seen in time by this process's own scheduler."""
        node = self._node
        if node is not None:
            node.wake_for("default", at)

    @property
    def aio(self) -> AsyncFace:
        """The same verbs, awaitable."""
        from mainspring.aio import AsyncFace

        face = self._face
        if face is None or face.pid != os.getpid():  # threads do not survive a fork
            face = self._face = AsyncFace(self)
        return face

    # -- life --------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether this process takes part."""
        return self._node is not None

    @property
    def node(self) -> Node | None:
        """This process's part in the work, while it takes part."""
        return self._node

    @property
    def lease(self) -> float:
        """Seconds for which a claim holds unless it is renewed."""
        return self._lease

    def declared_queues(self) -> list[str]:
        """Return the queues that this app's tasks use, and those it was given."""
        return list(self._queues)

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
        """Take part in the background: fire due jobs, and with `work` execute the runs of queues, too.

        Safe in every process of a web server: a fire happens once, whoever fires it.
        """
        with self._lock:
            if self._node is not None:
                raise SchedulerAlreadyRunningError
            check_threads("the app")
            store = self.store
            enforce(store, self.require)
            wanted = self._wanted(queues) if work else {}
            self._place = (place or Workplace(self, threads=threads)) if work else None
            node = Node(
                self._place.executors if self._place is not None else {},
                clock=self._clock,
                lease=self._lease,
                timezone=self.timezone,
                listeners=self._listeners,
                queues=wanted,
                prepare=self._place.prepare if self._place is not None else None,
                schedules=schedule,
                watcher=watcher,
            )
            store.start(self, "default")
            node.add_store("default", store)
            if self._place is not None:
                self._place.start(node)
            if schedule:
                self._jobs.reconcile()
            self._node = node
            forget_in_children(self)
            atexit.register(self.stop)
            node.start()
        log.info("%s takes part as %s", self, node.id)

    def _wanted(self, queues: Mapping[str, int | None] | Iterable[str] | None) -> dict[str, int | None]:
        if queues is None:
            return dict.fromkeys(self._queues)
        if isinstance(queues, Mapping):
            return {check_queue(name): limit for name, limit in queues.items()}
        return {check_queue(name): None for name in queues}

    def drain(self) -> None:
        """Claim and fire nothing more; `stop` then waits for what runs."""
        if self._node is not None:
            self._node.drain(finish=False)

    def stop(self, wait: bool = True) -> None:
        """Stop taking part: finish what runs, give back what has not started."""
        with self._lock:
            node, self._node = self._node, None
            place, self._place = self._place, None
        atexit.unregister(self.stop)
        if node is None:
            return
        if place is not None and place.executes_here():
            # The caller is itself what would be waited for. No daemon: the interpreter waits for it.
            node.drain(finish=False)
            threading.Thread(target=_close, args=(node, place, wait), name="mainspring-close").start()
        else:
            _close(node, place, wait)

    def run(self, **options: Any) -> None:
        """Schedule and work in the foreground until SIGINT or SIGTERM, then finish what runs."""
        self.start(work=True, **options)
        done = threading.Event()
        before = {number: signal.signal(number, lambda *_: done.set()) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            while not done.wait(1):  # in slices: a signal that comes just as one begins is seen when it ends
                pass
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self.stop()

    def close(self) -> None:
        """Stop, and close the store; a later call opens it again."""
        self.stop()
        if self._opened is not None:
            self._opened.shutdown()

    def _after_fork(self) -> None:
        self._lock = threading.RLock()
        self._node = self._place = None
        atexit.unregister(self.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        from mainspring.jobstores.opening import without_password

        return f"<Mainspring {without_password(self.url) if isinstance(self.url, str) else self.url!r}>"


def _close(node: Node, place: Workplace | None, wait: bool) -> None:
    """Wait for what runs, and let go of threads and connections; a later call opens the store again."""
    stores = [link.store for link in node.links.values()]
    # In memory nobody could take over what waits.
    node.stop(finish=wait and all(store.volatile for store in stores))
    if place is not None:
        place.shutdown(wait)
    for store in stores:
        store.shutdown()
    for link in node.links.values():
        link.join_listener()


def _id(run: str | RunHandle[Any]) -> str:
    return run if isinstance(run, str) else run.id


def _job_id(job: str | Job) -> str:
    if isinstance(job, Job):
        return job.id
    if isinstance(job, Task):
        return job.name
    if not isinstance(job, str):
        raise ConfigurationError(f"a job is named by its id, not by {job!r}")
    return job
