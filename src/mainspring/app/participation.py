"""The node of an app in this process, from its start to the end of its last run."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mainspring.app.runs import ALIAS
from mainspring.app.waiting import hub
from mainspring.core.insight.wording import several
from mainspring.errors import SchedulerAlreadyRunningError
from mainspring.executors.current_run import CURRENT
from mainspring.executors.execution import shown
from mainspring.jobstores.health import enforce
from mainspring.node.events.listeners import Listeners
from mainspring.node.forking import check_threads, forget_in_children, handle_here
from mainspring.node.node import Node

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from mainspring.app import Mainspring
    from mainspring.app.declaring.lifespan import Lifespan
    from mainspring.app.placement import Workplace
    from mainspring.app.store import AppStore
    from mainspring.jobstores.base import JobStore
    from mainspring.node.watch.alerts import AlertBook

__all__ = ["Participation"]

log = logging.getLogger("mainspring.app")


class Participation:
    """Makes the node and its workplace when the app starts in this process, keeps both, and stops them."""

    def __init__(self, app_store: AppStore, listeners: Listeners, lifespan: Lifespan) -> None:
        self._app_store, self._listeners, self._lifespan = app_store, listeners, lifespan
        self.node: Node | None = None
        self.place: Workplace | None = None
        self._stopped = threading.Event()
        """Set when the node of the latest start has ended."""
        self._warned = False

    def begin(
        self,
        app: Mainspring,
        queues: Mapping[str, int | None],
        place: Workplace | None,
        *,
        schedule: bool,
        watcher: Any,
        alerts: AlertBook,
    ) -> Node:
        """Make a node that serves these queues, open its store and its workplace; `start` lets it work."""
        with self._app_store.lock:
            if self.node is not None:
                raise SchedulerAlreadyRunningError
            check_threads("the app")
            store = self._app_store.store
            enforce(store, None if app.inline else app.require)
            node = Node(
                {} if place is None else place.executors,
                clock=self._app_store.clock,
                lease=app.lease,
                timezone=app.timezone,
                events=app.events,
                queues=queues,
                prepare=None if place is None else place.prepare,
                executor_for=app.tasks.executor_for,
                unstarted=None if place is None else place.unstarted,
                schedules=schedule,
                watcher=watcher,
                declare=app.jobs.declare_again,
                code=app.code,
                alerts=alerts.targets,
                app_name=app.name,
                leave=app.stop,
            )
            self._open(app, store, node, place)
            self.node, self.place, self._app_store.link = node, place, node.links[ALIAS]
            self._stopped = threading.Event()
            forget_in_children(self)
            atexit.register(self._leave)
        if place is not None:
            try:
                self._lifespan.open(place.loop)
            except BaseException:
                self.stop(wait=False, watcher=watcher)
                raise
        return node

    def _open(self, app: Mainspring, store: JobStore, node: Node, place: Workplace | None) -> None:
        """Start the store, compare the declared schedules with it, and start the executors."""
        store.start(app, ALIAS)
        link = node.add_store(ALIAS, store)
        link.look_for_losses()  # remember the store's generations, so that later looks notice losses
        outbox = self._app_store.outbox
        if outbox is not None:
            link.janitor.chores.append(lambda: outbox.relay(store, link.now()))
        link.janitor.chores.append(app.bulks.adopt)
        if node.schedules:
            app.jobs.reconcile()
        if place is not None:
            try:
                place.start(node)
            except BaseException:  # leave no threads behind for the next start
                place.shutdown(wait=False)
                raise

    def start(self, node: Node) -> None:
        """Let the node work, unless it has been stopped meanwhile."""
        with self._app_store.lock:
            if self.node is node:
                node.start()

    @property
    def loop(self) -> AbstractEventLoop | None:
        """The loop on which this process executes coroutine tasks, if there is one."""
        return None if self.place is None else self.place.loop

    def is_caller(self) -> bool:
        """Return True if a run that this app executes calls this."""
        return self.place is not None and self.place.executes_here()

    def drain(self, *, watcher: Any = None) -> None:
        """Stop claiming and firing; `stop` then waits for started runs."""
        if self.node is not None and not self._is_kept_running("drain", watcher):
            self.node.drain(finish=False)

    def stop(self, wait: bool = True, *, watcher: Any = None) -> None:
        """Stop: finish started runs and give back the others.

        Only its watcher can stop a process that was started with a `watcher`, such as a worker process.
        """
        if not self._is_kept_running("stop", watcher):
            self._leave(wait)

    def close(self) -> None:
        """Stop, and close the store; a later call opens it again."""
        if self._is_kept_running("close"):
            return
        inside = self.is_caller()
        self._leave()
        if not inside:
            self._lifespan.close()
            for finish in self._app_store.before_closing:
                finish()
        if not inside and self._app_store.opened is not None:  # inside a run, the store closes when that run has ended
            self._app_store.hand_over_sums()
            hub.dismiss(self._app_store.opened)
            self._app_store.opened.shutdown()

    def run(self, start: Callable[[], None], stop: Callable[[], None]) -> None:
        """Start, wait for SIGINT, SIGTERM or the end of the node, and stop; a second signal ends the process.

        Only the main thread gets signals: in any other thread, the app runs until `stop()`.
        """
        signals: list[int] = []
        home = os.getpid()

        def note(number: int, _: object) -> None:
            # Treat SIGINT and SIGTERM together as one signal: a terminal sends one, and then a supervisor the other.
            if number in signals and os.getpid() == home:
                _leave_now(number)
            signals.append(number)

        here = threading.current_thread() is threading.main_thread()
        # Ctrl-C goes to the whole process group, but processes that tasks have forked should run until they end.
        install = {signal.SIGINT: signal.signal, signal.SIGTERM: handle_here} if here else {}
        before = {number: handle(number, note) for number, handle in install.items()}
        try:
            start()
            stopped = self._stopped
            try:
                # Wait in slices: a signal handler that sets the event could deadlock with a wait in the same thread.
                while not signals and not stopped.wait(0.2):
                    pass
            finally:
                if signals:
                    self._announce_stop(signals[0])
                stop()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _announce_stop(self, number: int) -> None:
        """Log what the stop waits for, so that it does not look like a hang."""
        node = self.node
        if node is None:
            return
        started = sum(
            min(link.in_flight.get(alias, 0), executor.slots)
            for link in node.links.values()
            for alias, executor in list(node.executors.items())
        )
        again = "Ctrl-C again" if number == signal.SIGINT else f"{signal.Signals(number).name} again"
        if started:  # use a warning, because a program without a logging configuration shows nothing below
            log.warning("stopping: letting %s end; %s to stop now", several(started, "run"), again)
        else:
            log.info("stopping")

    def _is_kept_running(self, verb: str, watcher: Any = None) -> bool:
        """Return True if the watcher, not the caller, decides when this process stops; log that once."""
        node = self.node
        if node is None or node.watcher is watcher:
            return False
        if not self._warned:
            self._warned = True
            found = CURRENT.get()
            log.warning(
                "%s called app.%s() in a worker process, which goes on: its sentinel decides when it stops",
                "somebody" if found is None else shown(found[0]),
                verb,
            )
        return True

    def _leave(self, wait: bool = True) -> None:
        inside = self.is_caller()
        with self._app_store.lock:
            node, place, stopped = self.node, self.place, self._stopped
            self.node = self.place = self._app_store.link = None
        atexit.unregister(self._leave)
        if node is None:
            return
        if inside:
            log.warning("a run has stopped its app: this process claims and fires nothing any more")
            # Use a thread, because stopping would wait for the caller's own run. It is not a daemon thread, so the
            # interpreter waits for it.
            node.drain(finish=False)
            threading.Thread(target=self._finish, args=(node, place, wait, stopped), name="mainspring-close").start()
        else:
            self._finish(node, place, wait, stopped)

    def _finish(self, node: Node, place: Workplace | None, wait: bool, stopped: threading.Event) -> None:
        """Wait for started runs, then release threads and connections; a later call opens the store again."""
        stores = [link.store for link in node.links.values()]
        try:
            # No other node can take over the waiting runs of a memory store.
            node.stop(finish=wait and all(store.volatile for store in stores))
            if wait:
                self._listeners.join()  # do this while the loop that awaits them still runs
            if place is not None:
                self._lifespan.stop()  # no run needs the resources any more, and their loop still runs
                place.shutdown(wait)
            for store in stores:
                hub.dismiss(store)
                store.shutdown()
            for link in node.links.values():
                link.join_listener()
        finally:
            stopped.set()

    def _after_fork(self) -> None:
        self.node = self.place = self._app_store.link = None
        atexit.unregister(self._leave)


def _leave_now(number: int) -> None:
    """End this process from a signal handler; other nodes take over its runs, as after a crash."""
    with suppress(OSError, ValueError):  # do not use logging: the interrupted code may hold its lock
        os.write(2, b"stopping now: other workers take over the runs that were started\n")
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(128 + number)
