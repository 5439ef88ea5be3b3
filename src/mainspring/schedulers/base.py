"""APScheduler's verbs over a node: add, change, find and remove jobs; start, pause and stop."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import tzinfo
from inspect import signature
from typing import Any, Final, Self

from mainspring import events
from mainspring.clock import Clock, SystemClock
from mainspring.core.policy import DEFAULT_POLICY
from mainspring.core.quantities import check_lease, check_seconds
from mainspring.core.validation import POLICY_FIELDS, check_field, make_policy
from mainspring.errors import SchedulerAlreadyRunningError, SchedulerNotRunningError
from mainspring.events import EVENT_ALL, SchedulerEvent
from mainspring.executors.base import BaseExecutor
from mainspring.jobstores.base import BaseJobStore, JobStore
from mainspring.locks import free_in_children
from mainspring.node.events.listeners import Listeners
from mainspring.node.events.run_events import RunEvents
from mainspring.node.forking import check_threads, forget_in_children
from mainspring.node.node import Node
from mainspring.node.watch.alerts import AlertBook
from mainspring.node.watch.pings import Pinger
from mainspring.plugins import check_options, find_plugin
from mainspring.schedulers import config
from mainspring.schedulers.jobs import SchedulerJobs, SchedulerVerbs
from mainspring.util import astimezone

__all__ = ["STATE_PAUSED", "STATE_RUNNING", "STATE_STOPPED", "BaseScheduler"]

STATE_STOPPED: Final = 0
STATE_RUNNING: Final = 1
STATE_PAUSED: Final = 2


class BaseScheduler(SchedulerVerbs):
    """The base of all schedulers. A front end adds its way to start and its default executor."""

    _options: frozenset[str] = frozenset()
    """Names of the additional options that a front end accepts."""

    def __init__(self, gconfig: Mapping[str, Any] = {}, **options: Any) -> None:
        self._lock = free_in_children(threading.RLock())
        self._listeners = Listeners()
        self._pinger = Pinger(self._listeners)
        self._run_events = RunEvents(self._listeners, self._deliver, lambda: self.timezone)
        self._executors: dict[str, BaseExecutor] = {}
        self._jobstores: dict[str, JobStore] = {}
        self._book = SchedulerJobs(self)
        self._node: Node | None = None
        self._closing: threading.Thread | None = None
        self.configure(gconfig, **options)

    # -- configuration -----------------------------------------------------------------------------------------

    def configure(self, gconfig: Mapping[str, Any] = {}, prefix: str = "apscheduler.", **options: Any) -> None:
        """Set the scheduler up; keys of `gconfig` may be flat, with the prefix `apscheduler.` or `mainspring.`."""
        if self.state != STATE_STOPPED:
            raise SchedulerAlreadyRunningError
        tree = config.gather(gconfig, prefix, options)
        config.check_names(tree, self._options)
        self._codec = config.make_codec(tree)
        executors = {a: self._make("executor", BaseExecutor, a, v) for a, v in tree.get("executors", {}).items()}
        stores = {a: self._make("job store", BaseJobStore, a, v) for a, v in tree.get("jobstores", {}).items()}
        defaults = config.read_job_defaults(tree.get("job_defaults", {}))
        retry_interval = check_seconds(
            "jobstore_retry_interval", tree.get("jobstore_retry_interval", 10), least=0.01, text=True
        )
        lease = check_lease(tree.get("lease", 15), text=True)
        zone = astimezone(tree.get("timezone"))
        alerts = AlertBook(tree.get("alerts", ()))
        self._configure(tree)
        with self._lock:
            self._logger = self._book.log = _as_logger(tree.get("logger"))
            self.timezone: tzinfo = zone or _local_zone()
            self._clock: Clock = tree.get("clock") or SystemClock()
            self._retry_interval, self._lease = retry_interval, lease
            self._defaults = {name: check_field(name, defaults[name]) for name in config.JOB_FIELDS if name in defaults}
            self._default_policy = make_policy(
                DEFAULT_POLICY, **{name: defaults[name] for name in defaults.keys() & POLICY_FIELDS}
            )
            self._alerts = alerts
            self._executors = dict(executors)
            self._jobstores = {alias: _as_job_store(store) for alias, store in stores.items()}

    def _configure(self, options: dict[str, Any]) -> None:
        """Read the options that only this front end has."""

    def _make(self, kind: str, base: type[Any], alias: str, value: Any) -> Any:
        if isinstance(value, (base, str)):
            return self._build(kind, base, value, {})
        name, options = config.take(f"{kind} {alias!r}", value)
        return self._build(kind, base, name, options)

    def _build(self, kind: str, base: type[Any], plugin: Any, options: dict[str, Any]) -> Any:
        if isinstance(plugin, base):
            return plugin
        if not isinstance(plugin, str):
            raise TypeError(f"{kind} must be an object of a {base.__name__} class or a name, not {plugin!r}")
        if kind == "job store" and "://" in plugin:
            from mainspring.jobstores.opening import open_store

            kept = plugin.partition(":")[0] != "memory"
            return open_store(plugin, **(self._with_codec(options) if kept else options))
        factory = find_plugin(kind, plugin)
        if kind == "job store" and "codec" in signature(factory).parameters:
            options = self._with_codec(options)
        check_options(kind, plugin, factory, options)
        return factory(**options)

    def _with_codec(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return a store's options, with the scheduler's codec added if the options name none."""
        return options if self._codec is None else {"codec": self._codec, **options}

    # -- life --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> int:
        """STATE_STOPPED, STATE_RUNNING or STATE_PAUSED; in a forked child the parent's scheduler is stopped."""
        node = self._node
        if node is None:
            return STATE_STOPPED
        return STATE_PAUSED if node.paused else STATE_RUNNING

    @property
    def running(self) -> bool:
        """Whether the scheduler has been started, paused or not."""
        return self.state != STATE_STOPPED

    def start(self, paused: bool = False) -> Any:
        """Start scheduling, and store the jobs that were added before the start."""
        check_threads("the scheduler")
        while (node := self._begin(paused)) is None:
            self._renew()
        self._logger.info("Scheduler started")
        self._dispatch_event(SchedulerEvent(events.EVENT_SCHEDULER_STARTED))
        with self._lock:  # the first job may call shutdown() at once, which must wait until all loops have started
            if self._node is node:
                node.start()
        return None

    def _begin(self, paused: bool) -> Node | None:
        """Open executors and stores for a new node; return None if an earlier shutdown has not finished."""
        with self._lock:
            if self.state != STATE_STOPPED:
                raise SchedulerAlreadyRunningError
            if self._closing is not None and self._closing.is_alive() and not self._must_not_block():
                return None
            if "default" not in self._executors:
                self.add_executor(self._create_default_executor())
            if "default" not in self._jobstores:
                self.add_jobstore(self._create_default_jobstore())
            forget_in_children(self)
            node = self._node = Node(
                self._executors,
                clock=self._clock,
                lease=self._lease,
                retry_interval=self._retry_interval,
                timezone=self.timezone,
                events=self._run_events,
                alerts=self._alerts.targets,
                leave=self._leave,
            )
            node.paused = paused
            try:
                self._open()
            except BaseException:
                self._node = None
                raise
            atexit.register(self._at_exit)
            return node

    def _renew(self) -> None:
        """Wait until an earlier shutdown has finished, without the lock: its runs may need it."""
        if self._closing is not None:
            self._closing.join()

    def _open(self) -> None:
        """Start the executors and stores, and store the pending jobs; on an error, shut down all that were started."""
        opened: list[Callable[[], None]] = []
        try:
            for alias, store in self._jobstores.items():
                store.use_clock(self._clock)
                store.start(self, alias)
                opened.append(store.shutdown)
                self._running_node().add_store(alias, store)
            for alias, executor in self._executors.items():
                self._start_executor(executor, alias)
                opened.append(executor.shutdown)
            self._book.put_pending()
        except BaseException:
            for close in reversed(opened):
                close()
            raise

    def _start_executor(self, executor: BaseExecutor, alias: str) -> None:
        node = self._running_node()
        executor.now = node.elapsed
        executor.notify = node.notify
        executor.start(self, alias)

    def shutdown(self, wait: bool = True) -> None:
        """Stop scheduling. With `wait`, return after the started runs and the runs waiting in memory have ended."""
        with self._lock:
            node, self._node = self._node, None
            if node is None:
                raise SchedulerNotRunningError
            executors, stores = dict(self._executors), dict(self._jobstores)
        atexit.unregister(self._at_exit)
        self._finish(node, wait, lambda: _close(node, wait, executors, stores))
        self._logger.info("Scheduler has been shut down")
        self._dispatch_event(SchedulerEvent(events.EVENT_SCHEDULER_SHUTDOWN))
        if wait and not self._must_not_block():
            self._listeners.join()

    def _leave(self) -> None:
        """Shut down on an order that came through the store."""
        with suppress(SchedulerNotRunningError):  # the program itself shut down first
            self.shutdown()

    def _finish(self, node: Node, wait: bool, close: Callable[[], None]) -> None:
        """Close now, or in the background if the caller does not want to wait or is inside a run."""
        node.drain(finish=wait)
        if wait and not self._must_not_block():
            close()
        else:
            # A non-daemon thread: the interpreter waits for it, and it waits for started runs.
            self._closing = threading.Thread(target=close, name="mainspring-close")
            self._closing.start()

    def _must_not_block(self) -> bool:
        """Return True if waiting on this thread would keep runs from ending."""
        return any(executor.executes_here() for executor in self._executors.values())

    def pause(self) -> None:
        """Stop firing jobs and starting runs until `resume`; started runs continue."""
        node = self._running_node()
        if not node.paused:
            node.pause()
            self._logger.info("Paused scheduler job processing")
            self._dispatch_event(SchedulerEvent(events.EVENT_SCHEDULER_PAUSED))

    def resume(self) -> None:
        """Continue after `pause`."""
        node = self._running_node()
        if node.paused:
            node.resume()
            self._logger.info("Resumed scheduler job processing")
            self._dispatch_event(SchedulerEvent(events.EVENT_SCHEDULER_RESUMED))

    def __enter__(self) -> Self:
        if not self.running:
            self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self.running:
            self.shutdown()

    def _running_node(self) -> Node:
        if self._node is None:
            raise SchedulerNotRunningError
        return self._node

    # -- executors, stores, listeners --------------------------------------------------------------------------

    def alert(self, target: Any, /, **options: Any) -> Any:
        """Notify a URL, a `Webhook` or a function when a job is late, down or up again; see `Mainspring.alert`."""
        self._alerts.add(target, **options)
        return target

    def ping(self, url: str, jobs: str | Iterable[str]) -> None:
        """Call a URL after each success of these jobs (ids or patterns), so an external monitor notices silence."""
        self._pinger.add(url, jobs)

    def add_executor(self, executor: BaseExecutor | str, alias: str = "default", **executor_opts: Any) -> None:
        """Add an executor: an object, or a name with the options to make it."""
        with self._lock:
            if alias in self._executors:
                raise ValueError(f"this scheduler already has an executor with the alias {alias!r}")
            made = self._build("executor", BaseExecutor, executor, executor_opts)
            if self._node is not None:
                self._start_executor(made, alias)
            self._executors[alias] = made
        self._dispatch_event(SchedulerEvent(events.EVENT_EXECUTOR_ADDED, alias))
        self.wakeup()

    def remove_executor(self, alias: str, shutdown: bool = True) -> None:
        """Remove an executor; its runs wait until a node with this executor claims them."""
        with self._lock:
            executor = self._executors.pop(self._known("executor", alias, self._executors))
        if self._node is not None:
            self._node.withdraw([executor])
        if shutdown:
            executor.shutdown(wait=not executor.executes_here())
        self._dispatch_event(SchedulerEvent(events.EVENT_EXECUTOR_REMOVED, alias))

    def add_jobstore(self, jobstore: BaseJobStore | str, alias: str = "default", **jobstore_opts: Any) -> None:
        """Add a job store: an object, or a name with the options to make it."""
        with self._lock:
            if alias in self._jobstores:
                raise ValueError(f"this scheduler already has a job store with the alias {alias!r}")
            store = _as_job_store(self._build("job store", BaseJobStore, jobstore, jobstore_opts))
            if self._node is not None:
                store.use_clock(self._clock)
                store.start(self, alias)
                self._node.add_store(alias, store)
            self._jobstores[alias] = store
        self._dispatch_event(SchedulerEvent(events.EVENT_JOBSTORE_ADDED, alias))

    def remove_jobstore(self, alias: str, shutdown: bool = True) -> None:
        """Remove a job store from this scheduler once its started runs have ended; the store keeps its jobs."""
        with self._lock:
            store, node = self._jobstores.pop(self._known("job store", alias, self._jobstores)), self._node
            link = None if node is None else node.remove_store(alias)

        def close() -> None:
            if node is not None and link is not None:
                node.close_store(link)
            if shutdown:
                store.shutdown()
                if link is not None:
                    link.join_listener()

        if link is not None and link.claims and self._must_not_block():
            threading.Thread(target=close, name="mainspring-close").start()
        else:
            close()  # without the lock: the runs may need it
        self._dispatch_event(SchedulerEvent(events.EVENT_JOBSTORE_REMOVED, alias))

    def add_listener(self, callback: Callable[[Any], object], mask: int = EVENT_ALL) -> None:
        """Call `callback` for each event in the mask."""
        self._listeners.add(callback, mask)

    def remove_listener(self, callback: Callable[[Any], object]) -> None:
        """Stop calling `callback`."""
        self._listeners.remove(callback)

    # -- for front ends ----------------------------------------------------------------------------------------

    def _create_default_executor(self) -> BaseExecutor:
        from mainspring.executors.threads.pool import ThreadPoolExecutor

        return ThreadPoolExecutor()

    def _create_default_jobstore(self) -> JobStore:
        from mainspring.jobstores.memory import MemoryJobStore

        return MemoryJobStore()

    def _at_exit(self) -> None:
        """Finish the started runs, and the runs waiting in memory, before the interpreter exits."""
        node, self._node = self._node, None
        if node is not None:
            _close(node, True, self._executors, {})
            self._listeners.join()

    def _after_fork(self) -> None:
        """Mark the scheduler as stopped in a forked child: its threads exist only in the parent."""
        self._node = None
        atexit.unregister(self._at_exit)


def _close(node: Node, wait: bool, executors: Mapping[str, BaseExecutor], stores: Mapping[str, JobStore]) -> None:
    """Wait for started runs, then release executors and stores."""
    node.stop(finish=wait)
    for executor in executors.values():
        executor.shutdown(wait)
    for store in stores.values():
        store.shutdown()
    for link in node.links.values():
        link.join_listener()


def _as_logger(logger: Any) -> logging.Logger:
    if isinstance(logger, logging.Logger):
        return logger
    return logging.getLogger(logger or "mainspring.scheduler")


def _local_zone() -> tzinfo:
    from tzlocal import get_localzone

    return get_localzone()


def _as_job_store(store: BaseJobStore) -> JobStore:
    if isinstance(store, JobStore):
        return store
    from mainspring.jobstores.apscheduler import LegacyJobStore

    return LegacyJobStore(store)
