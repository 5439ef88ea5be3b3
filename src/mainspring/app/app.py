"""Mainspring: the front door. Tasks and schedules, start and stop; thin over a store and a node.

What it can be asked (to enqueue, about runs, jobs and queues) is in `verbs`; what it stands on is in `appstore`.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar, overload

from mainspring.app.enqueue import Calls
from mainspring.app.import_guard import refuse_to_run, refuse_to_start, warn_of_enqueuing
from mainspring.app.including import warn_of_forgotten
from mainspring.app.jobs import JobsOfApp
from mainspring.app.middleware import SIGNALS, Middleware
from mainspring.app.placement import Workplace
from mainspring.app.registry import (
    AsyncTask,
    Options,
    Registers,
    Registry,
    Task,
    check_queue,
    make_options,
    reference_of,
)
from mainspring.app.runs import ALIAS, Runs
from mainspring.app.verbs import Verbs
from mainspring.clock import Clock, StoreTime, SystemClock
from mainspring.core.quantities import check_count, check_lease
from mainspring.core.references import iscoroutinefunction_partial
from mainspring.core.run import Run
from mainspring.errors import SchedulerAlreadyRunningError, near
from mainspring.events import EVENT_ALL
from mainspring.executors.current_run import CURRENT, CurrentRun
from mainspring.executors.execution import shown
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.health import check_requirement, enforce
from mainspring.node.awaiting import Awaiter
from mainspring.node.forking import check_threads, forget_in_children, handle_here
from mainspring.node.listeners import Listeners
from mainspring.node.node import Node
from mainspring.node.run_events import RunEvents

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from mainspring.aio import AsyncFace
    from mainspring.triggers.base import BaseTrigger

__all__ = ["Mainspring"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

TRUSTED: Final = 60.0
"""Seconds for which this process trusts what it knows of the store's clock."""

log = logging.getLogger("mainspring.app")


class Mainspring(Verbs):
    """An app: tasks and schedules over one store.

    Making one opens nothing and starts nothing. Without a URL, `MAINSPRING_URL` says where the store is, else it is
    `mainspring.db` in the current folder. Several apps share a store under different names. With `require`, `"durable"`
    or `"replicated(n)"`, it does not start on a store that gives less. `include` names the modules with its tasks and
    schedules, also by pattern (`shop.reports.*`): they are imported when the app starts.
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
        include: str | Iterable[str] = (),
        lease: float = 15.0,
        require: str | None = None,
        clock: Clock | None = None,
        store_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(url, name, secret_key, allow_pickle, store_options, timezone)
        self.inline = inline
        self.tasks = Registry()
        self._queues = {check_queue(queue): None for queue in ("default", *queues)}
        self._include = [include] if isinstance(include, str) else list(include)
        self._lease = check_lease(lease)
        self.require = None if require is None else check_requirement(require)
        self._clock = clock or SystemClock()
        self._awaiter = Awaiter(self._worker_loop)
        self._listeners = Listeners(self._awaiter)
        self._middleware = Middleware(self._awaiter)
        self.events = RunEvents(self._listeners, zone=lambda: self.timezone)
        self._runs = Runs(lambda: self.lasting_store, self.now, lambda: self.timezone, self._stop_here, self.events)
        self._jobs = JobsOfApp(self, self._clock)
        self._calls = Calls(self)
        self._time = StoreTime(lambda: self.lasting_store.server_time(), self._clock, TRUSTED)
        self._node: Node | None = None
        self._place: Workplace | None = None
        self._warned_to_stop = False
        self._face: AsyncFace | None = None
        self._stopped = threading.Event()
        """Set when the app has stopped, for `run`."""

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
        if callable(trigger):
            raise TypeError('say when: @app.schedule("0 3 * * *") or @app.schedule("interval", minutes=5)')

        def declare(func: F) -> F:
            task = func if isinstance(func, Task) else self.task(func)
            self._jobs.declare(task, trigger, id, options)
            return func

        return declare

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

    def report(self, error: BaseException, run: CurrentRun | None) -> None:
        """Give a failure that no middleware saw to the error reporters."""
        self._middleware.report(error, run)

    def emit(self, name: str, *args: Any) -> None:
        """Call those who listen to a signal."""
        self._middleware.emit(name, *args)

    @property
    def needs_loop(self) -> bool:
        """Whether a listener, a signal or middleware is a coroutine function."""
        return self._middleware.needs_loop or self._listeners.need_loop

    def _worker_loop(self) -> AbstractEventLoop | None:
        """Return the loop on which this process executes coroutine tasks, if it does."""
        return None if self._place is None else self._place.loop

    def _make_store(self) -> JobStore:
        store = super()._make_store()
        store.use_clock(self._clock)
        store.on_set_aside = functools.partial(self.events.set_aside, ALIAS)
        return store

    def _forget_wrapped(self) -> None:
        if self._place is not None:
            self._place.forget()
        self._calls.forget()

    # -- what the parts share ----------------------------------------------------------------------------------

    def now(self) -> int:
        """Return the store's time, as far as this process knows it."""
        if self.inline:
            return self.store.server_time()
        node = self._node
        return self._time.now() if node is None else node.links[ALIAS].now()

    @property
    def slack(self) -> int:
        """By how much the store's time may be ahead of what `now` last said: so long did the store take to tell it."""
        node = self._node
        return self._time.slack if node is None else node.links[ALIAS].slack

    def _stop_here(self, run_id: str) -> None:
        """Stop a run that is to be cancelled at once if this process executes it; other nodes learn by their beat."""
        node = self._node
        for link in [] if node is None else list(node.links.values()):
            run = link.claims.get(run_id)
            if run is not None:
                link.stop_run(run)

    def wake_worker(self, runs: Sequence[Run]) -> None:
        """Have this process's own worker look for runs that were enqueued here; others are told by the store."""
        warn_of_enqueuing()
        node = self._node
        if node is not None:
            for run in {run.queue: run for run in runs}.values():
                node.links[ALIAS].worker.look(run.queue)

    def wake_for(self, at: int | None) -> None:
        """Have a job that is due at `at` seen in time by this process's own scheduler."""
        node = self._node
        if node is not None:
            node.wake_for(ALIAS, at)

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
        refuse_to_start()
        self.load()
        if work and watcher is None:
            warn_of_forgotten(self)
        with self._lock:
            if self._node is not None:
                raise SchedulerAlreadyRunningError
            check_threads("the app")
            store = self.store
            enforce(store, None if self.inline else self.require)
            wanted = self._wanted(queues) if work else {}
            place = (place or Workplace(self, threads=threads)) if work else None
            node = Node(
                place.executors if place is not None else {},
                clock=self._clock,
                lease=self._lease,
                timezone=self.timezone,
                events=self.events,
                queues=wanted,
                prepare=place.prepare if place is not None else None,
                schedules=schedule,
                watcher=watcher,
                declare=self._jobs.declare_again,
            )
            store.start(self, ALIAS)
            node.add_store(ALIAS, store).look_for_losses()  # so that those from now on are noticed
            if schedule:
                self._jobs.reconcile()
            if place is not None:
                try:
                    place.start(node)
                except BaseException:  # a start that is tried again must not find threads of this one
                    place.shutdown(wait=False)
                    raise
            self._place, self._node = place, node
            forget_in_children(self)
            atexit.register(self._leave)
        if place is not None and place.worker_name is not None:
            self.emit("post_spawn", place.worker_name)
        with self._lock:
            if self._node is node:
                node.start()
        log.info("%s takes part as %s", self, node.id)

    def _wanted(self, queues: Mapping[str, int | None] | Iterable[str] | None) -> dict[str, int | None]:
        if queues is None:
            return dict.fromkeys(self._queues)
        if isinstance(queues, Mapping):
            limits = {check_queue(name): limit for name, limit in queues.items()}
            return {
                name: None if limit is None else check_count(f"the limit of the queue {name!r}", limit)
                for name, limit in limits.items()
            }
        return {check_queue(name): None for name in queues}

    def drain(self, *, watcher: Any = None) -> None:
        """Claim and fire nothing more; `stop` then waits for what runs."""
        if self._node is not None and not self._is_kept_running("drain", watcher):
            self._node.drain(finish=False)

    def stop(self, wait: bool = True, *, watcher: Any = None) -> None:
        """Stop taking part: finish what runs, give back what has not started.

        A process that was started with a `watcher`, as a worker process is, is stopped by that watcher only.
        """
        if not self._is_kept_running("stop", watcher):
            self._leave(wait)

    def _is_kept_running(self, verb: str, watcher: Any = None) -> bool:
        """Tell whether somebody else than the caller decides when this process stops; say so, once."""
        node = self._node
        if node is None or node.watcher is watcher:
            return False
        if not self._warned_to_stop:
            self._warned_to_stop = True
            found = CURRENT.get()
            log.warning(
                "%s called app.%s() in a worker process, which goes on: its sentinel decides when it stops",
                "somebody" if found is None else shown(found[0]),
                verb,
            )
        return True

    def _is_caller(self) -> bool:
        """Tell whether the calling code is part of a run that this app executes."""
        return self._place is not None and self._place.executes_here()

    def _leave(self, wait: bool = True) -> None:
        inside = self._is_caller()
        with self._lock:
            node, self._node = self._node, None
            place, self._place = self._place, None
        atexit.unregister(self._leave)
        if node is None:
            return
        if inside:
            log.warning("a run has stopped its app: this process takes no part any more")
            # The caller is itself what would be waited for. No daemon: the interpreter waits for it.
            node.drain(finish=False)
            threading.Thread(target=self._finish, args=(node, place, wait), name="mainspring-close").start()
        else:
            self._finish(node, place, wait)

    def _finish(self, node: Node, place: Workplace | None, wait: bool) -> None:
        try:
            _close(node, place, wait, self._listeners)
        finally:
            self._stopped.set()

    def run(self, **options: Any) -> None:
        """Schedule and work in the foreground until SIGINT, SIGTERM or `stop()`, then finish what runs.

        Only the main thread hears signals: in any other the app runs until somebody stops it.
        """
        refuse_to_run()
        done = self._stopped = threading.Event()
        here = threading.current_thread() is threading.main_thread()
        # Ctrl-C goes to the whole group: what tasks have forked is to go on until they end.
        install = {signal.SIGINT: signal.signal, signal.SIGTERM: handle_here} if here else {}
        before = {number: handle(number, lambda *_: done.set()) for number, handle in install.items()}
        try:
            self.start(work=True, **options)
            try:
                while not done.wait(1):  # in slices: a signal that comes just as one begins is seen when it ends
                    pass
            finally:
                self.stop()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def close(self) -> None:
        """Stop, and close the store; a later call opens it again."""
        if self._is_kept_running("close"):
            return
        if self._is_caller():  # the store is closed once that run has ended
            return self._leave()
        self._leave()
        if self._opened is not None:
            self._opened.shutdown()

    def _after_fork(self) -> None:
        self._lock = threading.RLock()
        self._node = self._place = None
        atexit.unregister(self._leave)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if not self._is_caller():  # a task that uses `with app:` must not end what executes it
            self.close()

    def __repr__(self) -> str:
        from mainspring.core.redaction import without_password

        return f"<Mainspring {without_password(self.url) if isinstance(self.url, str) else self.url!r}>"


def _close(node: Node, place: Workplace | None, wait: bool, listeners: Listeners) -> None:
    """Wait for what runs, and let go of threads and connections; a later call opens the store again."""
    stores = [link.store for link in node.links.values()]
    # In memory nobody could take over what waits.
    node.stop(finish=wait and all(store.volatile for store in stores))
    if wait:
        listeners.join()  # while the loop is there on which they are awaited
    if place is not None:
        place.shutdown(wait)
    for store in stores:
        store.shutdown()
    for link in node.links.values():
        link.join_listener()
