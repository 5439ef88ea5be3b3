"""The settings of a cluster, and the state that it reports."""

from __future__ import annotations

import os
import sys
from typing import Literal

import msgspec

from mainspring.core.quantities import check_count, check_seconds
from mainspring.errors import ConfigurationError
from mainspring.node.node import MOST_CLAIMED_RUNS

__all__ = ["ClusterStat", "Settings", "WorkerStat"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a cluster; its processes import the app from `app`, which is `module:attribute`."""

    app: str
    include: tuple[str, ...] = ()
    """Modules with tasks and schedules to import, by name or pattern, in addition to those that the app includes."""
    queues: dict[str, int | None] | None = None
    processes: int = 0
    """The number of worker processes; 0 for one per core."""
    threads: int = 8
    coroutines: int = 1000
    schedule: bool = True
    burst: bool = False
    """Whether to end as soon as no run waits."""
    max_runs: int | None = None
    max_rss: int | None = None
    """Replace a worker process that uses more memory than this, in bytes."""
    grace: float = 25.0
    """When the cluster stops, give started runs this many seconds to end."""
    timeout_grace: float = 5.0
    """Replace a process this many seconds after a run in it has passed its time-out."""
    start_method: str = "spawn"
    log_level: str | None = None
    log_format: Literal["text", "json"] = "text"

    def __post_init__(self) -> None:
        if sys.platform == "win32":
            raise ConfigurationError(
                "worker processes need the signals of POSIX, which Windows lacks: there, execute runs in your program "
                "by app.run() or app.start(work=True)"
            )
        for name, limit in (self.queues or {}).items():
            if limit is not None:
                check_count(f"the limit of the queue {name!r}", limit)
        check_count("processes", self.processes, least=0)
        check_count("threads", self.threads)
        check_count("coroutines", self.coroutines)
        for name in ("max_runs", "max_rss"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_seconds("grace", self.grace)
        check_seconds("timeout_grace", self.timeout_grace)

    @property
    def size(self) -> int:
        """The number of worker processes."""
        return self.processes or os.cpu_count() or 1

    @property
    def entries(self) -> int:
        """The size of a worker's scoreboard: more runs than a worker can ever have started but not settled."""
        return self.threads + self.coroutines + 6 * MOST_CLAIMED_RUNS


class WorkerStat(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a worker process."""

    pid: int
    state: str
    started_at: float
    claims: int = 0
    runs: int = 0
    restarts: int = 0


class ClusterStat(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a cluster: starting, running, stopping or stopped."""

    pid: int
    state: str
    started_at: float
    workers: tuple[WorkerStat, ...] = ()

    @property
    def runs(self) -> int:
        """How many runs the living workers have ended."""
        return sum(worker.runs for worker in self.workers)
