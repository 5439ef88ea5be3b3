"""django-q's `Cluster` under its usual path: `manage.py qcluster` in a child process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Final

from mainspring.django_q.conf import Conf
from mainspring.django_q.status import Stat, Status

__all__ = ["Cluster"]

LOOK_SECONDS: Final = 0.1
"""The pause between two checks of a starting cluster, in seconds."""


class SentinelProcess:
    """The process of a cluster, with the verbs of `multiprocessing.Process` that django-q's users know."""

    def __init__(self, queue: str | None) -> None:
        words = [sys.executable, "-m", "django", "qcluster", *(("--queues", queue) if queue else ())]
        path = os.pathsep.join(filter(None, sys.path))  # so that the cluster can import the same modules
        self._process = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": path})
        self.pid = self._process.pid

    @property
    def exitcode(self) -> int | None:
        """The exit code; None while the process is alive."""
        return self._process.poll()

    def is_alive(self) -> bool:
        """Return True until the process has ended."""
        return self._process.poll() is None

    def terminate(self) -> None:
        """Let started tasks end, then end the process."""
        if self.is_alive():
            self._process.send_signal(signal.SIGTERM)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the process to end."""
        self._process.wait(timeout)


class Cluster:
    """A cluster that code starts and stops. Most projects use `manage.py qcluster` instead."""

    def __init__(self, broker: Any = None) -> None:
        self.broker, self.host = broker, socket.gethostname()
        self.pid = os.getpid()
        self.sentinel: SentinelProcess | None = None

    def start(self) -> int:
        """Start a sentinel and its workers; return its pid once they serve the queue."""
        self.sentinel = made = SentinelProcess(None if self.broker is None else self.broker.list_key)
        while not isinstance(self.stat, Stat):
            if not made.is_alive():
                raise RuntimeError(f"the cluster did not start; its process has ended with {made.exitcode}")
            time.sleep(LOOK_SECONDS)
        return made.pid

    def stop(self) -> bool:
        """Let started tasks end, then stop; return False if the cluster was not running."""
        if self.sentinel is None or not self.sentinel.is_alive():
            return False
        self.sentinel.terminate()
        self.sentinel.join()
        return True

    @property
    def cluster_id(self) -> str:
        """The id that the cluster announces."""
        return f"{self.host}:{self.pid if self.sentinel is None else self.sentinel.pid}"

    @property
    def stat(self) -> Status:
        """The current state of the cluster."""
        return Stat.get(self.pid, self.cluster_id)

    @property
    def name(self) -> str:
        """The name of the cluster: its id."""
        return self.cluster_id

    @property
    def is_running(self) -> bool:
        """Whether the cluster was started and not stopped."""
        return self.sentinel is not None and self.sentinel.is_alive()

    @property
    def is_starting(self) -> bool:
        """Whether the cluster was started but does not serve the queue yet."""
        return self.is_running and not isinstance(self.stat, Stat)

    @property
    def is_stopping(self) -> bool:
        """Whether the cluster is letting started tasks end."""
        return self.is_running and self.stat.status == Conf.STOPPING

    @property
    def has_stopped(self) -> bool:
        """Whether the cluster was started and has stopped."""
        return self.sentinel is not None and not self.sentinel.is_alive()
