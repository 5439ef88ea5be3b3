"""A worker process: a node that serves queues, with a pipe to its sentinel."""

from __future__ import annotations

import gc
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from typing import Any, Final

from mainspring.app import Mainspring
from mainspring.app.loading.locating import find_app, without_lint
from mainspring.app.placement import Workplace
from mainspring.cluster.log_output import set_up_logging
from mainspring.cluster.messages import (
    AWAY,
    DRAINING,
    NOTHING_LEFT,
    PING,
    PONG,
    READY,
    STOP,
    STOP_RUNS,
    STUCK,
    WorkerChannel,
    read,
)
from mainspring.cluster.settings import Settings
from mainspring.errors import StoreUnavailable
from mainspring.events import EVENT_RUN_STUCK, RunEvent
from mainspring.executors.processes.child import die_with_parent
from mainspring.executors.scoreboard import Scoreboard
from mainspring.node.forking import handle_here
from mainspring.node.heartbeat import resident_bytes

__all__ = ["keyboard_held", "main"]

MEMORY_LOOK_SECONDS: Final = 1.0
"""Check the memory of the process this often."""
BURST_LOOK_SECONDS: Final = 0.05
SWITCH_INTERVAL_SECONDS: Final = 0.001
GC_THRESHOLD_OBJECTS: Final = 10_000
"""Let Python look for garbage cycles after this many new objects."""
BURST_IDLE_SECONDS: Final = 0.2
"""End a burst after this long without work."""

log = logging.getLogger("mainspring.cluster")


def main(
    settings: Settings,
    pipe: Connection,
    board: Scoreboard,
    number: int,
    strangers: Iterable[Connection],
    steady_since: float | None,
    began_at: float,
) -> None:
    """Work until the sentinel asks to stop; close the `strangers`, other workers' pipe ends that a fork copied.

    The sentinel started at `began_at` and has reached the store since `steady_since`.
    """
    for end in strangers:
        end.close()
    _let_fork_server_end()
    die_with_parent()
    signal.set_wakeup_fd(-1)  # a fork copied the sentinel's
    # Ctrl-C goes to the whole group, but the sentinel decides what it means. The signal is not ignored, because
    # programs that a task starts would inherit that.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    _hold(signal.SIG_UNBLOCK)  # the sentinel held it while this process had no handler
    set_up_logging(settings.log_level, settings.log_format)
    Worker(settings, pipe, board, number, steady_since, began_at).run()


@contextmanager
def keyboard_held() -> Iterator[None]:
    """Hold back Ctrl-C while a worker process is started.

    The process inherits the block. Without it, a Ctrl-C before the process sets its handler would end its imports.
    """
    if os.name == "posix":
        resource_tracker.ensure_running()  # starting it later would unblock the signal again
    _hold(signal.SIG_BLOCK)
    try:
        yield
    finally:
        _hold(signal.SIG_UNBLOCK)


def _hold(how: int) -> None:
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(how, {signal.SIGINT})


def _let_fork_server_end() -> None:
    """Close our copy of the file that keeps a fork server alive: it is our parent and must end with the sentinel."""
    server: Any = forkserver._forkserver
    fd = getattr(server, "_forkserver_alive_fd", None)
    if fd is not None and getattr(server, "_forkserver_pid", None) is None:
        server._forkserver_alive_fd = None
        with suppress(OSError):
            os.close(fd)


class Worker:
    """A worker process: it starts the app's node, and stops when the sentinel or a limit says so."""

    def __init__(
        self,
        settings: Settings,
        pipe: Connection,
        board: Scoreboard,
        number: int,
        steady_since: float | None,
        began_at: float,
    ) -> None:
        self._settings = settings
        # The reasons to stop. A signal handler may put into this queue; almost anything else could deadlock with the
        # code that the signal interrupts.
        self._reasons: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._wire = WorkerChannel(
            *(pipe, board, steady_since), max_runs=settings.max_runs, stop=self._reasons.put, began_at=began_at
        )
        self._board = board
        self._name = f"worker-{number}"
        self._app: Mainspring | None = None

    def run(self) -> None:
        """Work until the sentinel asks to stop, or until a limit says that this process needs replacing."""
        handle_here(signal.SIGTERM, lambda *_: self._reasons.put("SIGTERM"))
        threading.Thread(target=self._read, name="mainspring-sentinel", daemon=True).start()
        settings = self._settings
        with without_lint():  # the sentinel logs the linter's findings, once for all workers
            app = find_app(settings.app, settings.include)
        place = Workplace(app, threads=settings.threads, coroutines=settings.coroutines, imported=True)
        place.board, place.worker_name = self._board, self._name
        app.on(EVENT_RUN_STUCK, self._stuck)
        self._app = app
        try:
            app.start(work=True, schedule=settings.schedule, queues=settings.queues, place=place, watcher=self._wire)
        except StoreUnavailable as error:
            self._wire.send(AWAY, str(error))  # the sentinel logs it with the time of the next try
            return
        _tune_interpreter()
        self._wire.send(READY)
        self._wire.send(DRAINING, self._wait_for_reason(app))
        app.drain(watcher=self._wire)
        app.stop(watcher=self._wire)
        app.close()

    def _wait_for_reason(self, app: Mainspring) -> str:
        idle_since: float | None = None
        while True:
            try:
                return self._reasons.get(timeout=BURST_LOOK_SECONDS if self._settings.burst else MEMORY_LOOK_SECONDS)
            except queue.Empty:
                reason = self._memory_exceeded()
            if reason is None and self._settings.burst:
                idle_since = (idle_since or time.monotonic()) if self._is_idle(app) else None
                if idle_since is not None and time.monotonic() - idle_since > BURST_IDLE_SECONDS:
                    reason = NOTHING_LEFT
            if reason is not None:
                return reason

    def _memory_exceeded(self) -> str | None:
        memory = self._settings.max_rss
        if memory is not None and (used := resident_bytes()) > memory:
            return f"it uses {used // 2**20} MiB of memory"
        return None

    def _is_idle(self, app: Mainspring) -> bool:
        node = app.node
        if node is None or any(link.claims for link in node.links.values()):
            return False
        mine = set(node.served_queues)
        try:
            queues = app.store.stats().queues
        except Exception:  # the loops report the outage
            return False
        return not any(queue.waiting for queue in queues if queue.name in mine and not queue.paused)

    # -- the sentinel ------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Read the sentinel's messages; kill this process when the sentinel is gone."""
        try:
            while True:
                word, what = read(self._wire.pipe)
                if word == STOP:
                    self._reasons.put(what)
                elif word == STOP_RUNS:
                    self._stop_runs(what)
                elif word == PING:
                    self._wire.send(PONG)
        except (EOFError, OSError):
            os.kill(os.getpid(), signal.SIGKILL)

    def _stop_runs(self, claims: list[tuple[str, str]]) -> None:
        node = None if self._app is None else self._app.node
        for link in [] if node is None else list(node.links.values()):
            for run_id, token in claims:
                run = link.claims.get(run_id)
                if run is not None and run.token == token:
                    link.stop_run(run)

    def _stuck(self, event: Any) -> None:
        assert isinstance(event, RunEvent)
        self._wire.send(STUCK, event.run_id)
        self._reasons.put(event.reason)


def _tune_interpreter() -> None:
    """Tune Python for threads that often wait for a store and handle batches of runs, unless the app has tuned it.

    A thread that has waited gets the interpreter back within one millisecond instead of five. The garbage collector
    skips imported objects and does not run in the middle of each batch: runs do not form cycles.
    """
    if sys.getswitchinterval() == 0.005:
        sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    gc.collect()
    gc.freeze()
    first, *others = gc.get_threshold()
    if 0 < first < GC_THRESHOLD_OBJECTS:  # 0: the app has switched it off
        gc.set_threshold(GC_THRESHOLD_OBJECTS, *others)
