"""A worker process: a node that serves queues, on the end of a pipe to its sentinel."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterable
from multiprocessing.connection import Connection
from typing import Any, Final

from mainspring.app import Mainspring
from mainspring.cluster.settings import Settings, find_app
from mainspring.cluster.wire import DRAINING, READY, STOP, STOP_RUNS, STUCK, Wire, read
from mainspring.events import EVENT_RUN_STUCK, RunEvent
from mainspring.executors.board import Board
from mainspring.executors.child import die_with_parent
from mainspring.working import Workplace

__all__ = ["main", "set_up_logging"]

LOOK: Final = 1.0
"""Seconds between two looks at memory and counts."""

log = logging.getLogger("mainspring.cluster")


def main(settings: Settings, pipe: Connection, board: str, number: int, strangers: Iterable[Connection]) -> None:
    """Work until told to stop; `strangers` are pipe ends that a fork copied and that are not ours."""
    for end in strangers:
        end.close()
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the sentinel says what it means
    set_up_logging(settings.log_level)
    Worker(settings, pipe, Board(board), number).run()


def set_up_logging(level: str | None) -> None:
    """Log to stderr, if asked to."""
    if level is not None:
        form = "%(asctime)s [%(process)d] %(levelname)s %(name)s: %(message)s"
        logging.basicConfig(level=level.upper(), format=form, force=True)


class Worker:
    """What happens in a worker process."""

    def __init__(self, settings: Settings, pipe: Connection, board: Board, number: int) -> None:
        self._settings = settings
        self._wire = Wire(pipe)
        self._board = board
        self._name = f"worker-{number}"
        self._stopping = threading.Event()
        self._app: Mainspring = find_app(settings.app)

    def run(self) -> None:
        """Take part until told to stop, or until it is time to be replaced."""
        app, settings = self._app, self._settings
        signal.signal(signal.SIGTERM, lambda *_: self._drain("SIGTERM"))
        place = Workplace(app, threads=settings.threads, coroutines=settings.coroutines)
        place.board = self._board
        app.on(EVENT_RUN_STUCK, self._stuck)
        app.start(work=True, schedule=settings.schedule, queues=settings.queues, place=place, watcher=self._wire)
        app.emit("post_spawn", self._name)
        self._wire.send(READY)
        reader = threading.Thread(target=self._read, name="mainspring-sentinel", daemon=True)
        reader.start()
        idle_since: float | None = None
        while not self._stopping.wait(LOOK if not settings.burst else 0.05):
            self._look_at_limits()
            if settings.burst:
                idle_since = (idle_since or time.monotonic()) if self._is_idle() else None
                if idle_since is not None and time.monotonic() - idle_since > 0.2:
                    self._drain("nothing is left")
        app.stop()
        app.close()

    def _read(self) -> None:
        """Hear what the sentinel says; without one there is nobody to work for."""
        try:
            while True:
                word, what = read(self._wire.pipe)
                if word == STOP:
                    self._drain("the cluster stops")
                elif word == STOP_RUNS:
                    self._stop_runs(what)
        except (EOFError, OSError):
            os.kill(os.getpid(), signal.SIGKILL)

    def _stop_runs(self, run_ids: list[str]) -> None:
        node = self._app.node
        for link in [] if node is None else list(node.links.values()):
            for run_id in run_ids:
                run = link.claims.get(run_id)
                if run is not None:
                    link.stop_run(run)

    def _drain(self, why: str) -> None:
        if not self._stopping.is_set():
            self._wire.send(DRAINING, why)
            self._app.drain()
            self._stopping.set()

    def _stuck(self, event: Any) -> None:
        assert isinstance(event, RunEvent)
        self._wire.send(STUCK, event.run_id)
        self._drain(f"run {event.run_id} did not end at its time-out")

    def _look_at_limits(self) -> None:
        limit, memory = self._settings.max_runs, self._settings.max_rss
        if limit is not None and self._wire.ended_runs >= limit:
            self._drain(f"{self._wire.ended_runs} runs are enough")
        elif memory is not None and (used := _resident()) > memory:
            self._drain(f"it uses {used // 2**20} MiB of memory")

    def _is_idle(self) -> bool:
        node = self._app.node
        if node is None or any(link.claims for link in node.links.values()):
            return False
        mine = set(node.lanes)
        return not any(queue.waiting for queue in self._app.store.queues() if queue.name in mine and not queue.paused)


def _resident() -> int:
    """Return the bytes of memory this process uses, 0 where that cannot be told."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
