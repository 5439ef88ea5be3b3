"""A cluster started from code: a sentinel process that this process starts and stops."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from mainspring.app.loading.locating import path_of
from mainspring.cluster.log_output import set_up_logging
from mainspring.cluster.settings import ClusterStat, Settings
from mainspring.core.quantities import check_timeout
from mainspring.errors import MainspringError

if TYPE_CHECKING:
    from mainspring.app import Mainspring

__all__ = ["Cluster"]

STAT_ANSWER_SECONDS: Final = 1.0
"""The sentinel answers within this time, unless it is settling the runs of a dead worker."""


class Cluster:
    """The worker processes of an app, supervised by a sentinel process.

    Takes the settings of `mainspring worker`: `processes`, `threads`, `queues`, `include`, `burst`, `max_runs`,
    `max_rss`, `schedule`, `grace`, `start_method`. The app has to be a variable of a module.
    """

    def __init__(self, app: Mainspring, **settings: Any) -> None:
        self._settings = Settings(app=path_of(app), **settings)
        self._process: Any = None
        self._pipe: Connection | None = None
        self._stat: ClusterStat | None = None
        self._asking = threading.RLock()  # a signal handler may ask or stop while this thread reads an answer
        self._asked = False
        """Whether the sentinel owes an answer."""
        self._told_to_stop = False

    def start(self, timeout: float = 60.0) -> int:
        """Start the sentinel and its workers; return the sentinel's pid once all have started."""
        if self._process is not None and self._process.is_alive():
            raise MainspringError("the cluster runs already; stop() it before you start it again")
        patience = check_timeout(timeout)
        context: Any = multiprocessing.get_context("spawn")
        self._stat, self._asked, self._told_to_stop = None, False, False
        self._pipe, theirs = context.Pipe()
        # Do not make it a daemon, which could not have children. The workers end with it, and it ends with stop().
        self._process = context.Process(target=_serve, args=(self._settings, theirs), name="mainspring-sentinel")
        self._process.start()
        theirs.close()
        atexit.register(self.stop)  # runs before multiprocessing's own handler, which would wait for ever
        deadline = time.monotonic() + patience
        while not (self.is_running or self.has_stopped):
            if time.monotonic() > deadline:
                self.stop()
                raise TimeoutError(f"the cluster did not start within {patience:g} s; see its log")
            self._hear(0.05)
        if self.has_stopped and not self._settings.burst:
            raise MainspringError(f"the cluster could not start: its sentinel ended with {self._process.exitcode}")
        return int(self._process.pid)

    def stop(self, timeout: float | None = None) -> bool:
        """Finish the started runs and give back the others; return True if the cluster ends within `timeout` seconds.

        A second call waits again.
        """
        if self._process is None:
            return True
        atexit.unregister(self.stop)
        if self._process.is_alive() and not self._told_to_stop:  # a second signal would end it at once
            self._told_to_stop = True
            os.kill(self._process.pid, signal.SIGTERM)
        self._process.join(None if timeout is None else check_timeout(timeout))
        self._hear(0)
        return not self._process.is_alive()

    @property
    def stat(self) -> ClusterStat | None:
        """The current state if the sentinel answers, else the last known one; None before the start."""
        self._ask()
        if self._stat is not None and self._process is not None and not self._process.is_alive():
            return msgspec.structs.replace(self._stat, state="stopped", workers=())
        return self._stat

    @property
    def pid(self) -> int | None:
        """The sentinel's pid."""
        return None if self._process is None else int(self._process.pid)

    @property
    def is_starting(self) -> bool:
        """Whether the cluster has been started, but not all of its workers have."""
        return self._process is not None and self._state() in ("", "starting")

    @property
    def is_running(self) -> bool:
        """Whether all its workers have started."""
        return self._state() == "running"

    @property
    def is_stopping(self) -> bool:
        """Whether the cluster finishes its started runs and then ends."""
        return self._state() == "stopping"

    @property
    def has_stopped(self) -> bool:
        """Whether the cluster has ended."""
        return self._state() == "stopped"

    def _state(self) -> str:
        self._hear(0)
        if self._process is None:
            return ""
        if not self._process.is_alive():
            return "stopped"
        return "" if self._stat is None else self._stat.state

    def _ask(self) -> None:
        """Ask the sentinel for the state of the cluster, unless it already owes an answer."""
        self._hear(0)
        pipe, deadline = self._pipe, time.monotonic() + STAT_ANSWER_SECONDS
        with self._asking:
            if pipe is not None and not self._asked and self._process.is_alive():
                with suppress(OSError):
                    pipe.send_bytes(b"")
                    self._asked = True
        while self._asked and self._process.is_alive() and time.monotonic() < deadline:
            self._hear(0.05)

    def _hear(self, patience: float) -> None:
        pipe = self._pipe
        with self._asking:
            try:
                while pipe is not None and pipe.poll(patience):
                    self._stat = msgspec.msgpack.decode(pipe.recv_bytes(), type=ClusterStat)
                    self._asked, patience = False, 0
                return
            except (EOFError, OSError):
                self._asked = False
        time.sleep(patience)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


def _serve(settings: Settings, pipe: Connection) -> None:
    """Run the sentinel in this process."""
    from mainspring.cluster.sentinel import Sentinel

    set_up_logging(settings.log_level, settings.log_format)

    def tell(stat: ClusterStat) -> None:
        with suppress(OSError):
            pipe.send_bytes(msgspec.msgpack.encode(stat))

    raise SystemExit(Sentinel(settings, tell, pipe).run())
