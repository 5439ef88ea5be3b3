"""The two pools, under the name by which APScheduler's users know them."""

from __future__ import annotations

from mainspring.executors.processes.pool import ProcessPoolExecutor
from mainspring.executors.threads.pool import ThreadPoolExecutor

__all__ = ["ProcessPoolExecutor", "ThreadPoolExecutor"]
