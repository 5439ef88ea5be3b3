"""The thread pool and the process pool, under the module name that APScheduler's users know."""

from __future__ import annotations

from mainspring.executors.processes.pool import ProcessPoolExecutor
from mainspring.executors.threads.pool import ThreadPoolExecutor

__all__ = ["ProcessPoolExecutor", "ThreadPoolExecutor"]
