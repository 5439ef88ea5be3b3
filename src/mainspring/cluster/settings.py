"""What a cluster is told, and what it tells of itself."""

from __future__ import annotations

import os

import msgspec

from mainspring.core.quantities import check_count, check_seconds
from mainspring.node.node import MOST_CLAIMED_RUNS

__all__ = ["ClusterStat", "Settings", "WorkerStat"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a cluster works; `app` is where its processes import the app from: `module:attribute`."""

    app: str
    include: tuple[str, ...] = ()
    """Modules with tasks and schedules to import besides those that the app includes, also by pattern."""
    queues: dict[str, int | None] | None = None
    processes: int = 0
    """0: as many as there are cores."""
    threads: int = 8
    coroutines: int = 1000
    schedule: bool = True
    burst: bool = False
    """End when nothing is left to do."""
    max_runs: int | None = None
    max_rss: int | None = None
    """Bytes of memory above which a worker process is replaced."""
    grace: float = 25.0
    """Seconds that what runs is given to end when the cluster stops."""
    timeout_grace: float = 5.0
    """Seconds past a run's time-out after which its process is replaced."""
    start_method: str = "spawn"
    log_level: str | None = None

    def __post_init__(self) -> None:
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
        """How many worker processes there are."""
        return self.processes or os.cpu_count() or 1

    @property
    def entries(self) -> int:
        """More runs than a worker process ever has that it has started and the store does not know to have ended."""
        return self.threads + self.coroutines + 6 * MOST_CLAIMED_RUNS


class WorkerStat(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process as its sentinel sees it."""

    pid: int
    state: str
    started_at: float
    claims: int = 0
    runs: int = 0
    restarts: int = 0


class ClusterStat(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster as its sentinel sees it: starting, running, stopping or stopped."""

    pid: int
    state: str
    started_at: float
    workers: tuple[WorkerStat, ...] = ()

    @property
    def runs(self) -> int:
        """How many runs the living workers have ended."""
        return sum(worker.runs for worker in self.workers)
