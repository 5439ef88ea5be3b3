"""A stop-watch at the borders of the layers of mainspring's worker: what a run costs, and where.

The watch is read once per batch, or at one call of many, so that it does not measure itself.
"""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

from bench.queueing import notes
from mainspring.executors.threads.pool import ThreadPoolExecutor
from mainspring.jobstores.records.store import RecordStore
from mainspring.node.claiming import WorkerTick
from mainspring.node.heartbeat import HeartbeatTick
from mainspring.node.janitor import JanitorTick
from mainspring.node.store_link import StoreLink

NANOSECOND = 1e-9
EVERY = 0.1
SAMPLED = 50
"""Of a method that is called for every run, one call of this many is watched and stands for all of them."""

_spent: dict[str, list[float]] = {}


def watch(owner: type, method: str, name: str = "") -> None:
    """Note the CPU and wall seconds spent in a method."""
    original: Callable[..., Any] = getattr(owner, method)
    spent = _spent.setdefault(name or method, [0.0, 0.0])

    @functools.wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:
        cpu, wall = time.thread_time(), time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            spent[0] += time.thread_time() - cpu
            spent[1] += time.perf_counter() - wall

    setattr(owner, method, watched)


def sample(owner: type, method: str) -> None:
    """Note about the CPU seconds spent in a method that is called for every run."""
    original: Callable[..., Any] = getattr(owner, method)
    spent = _spent.setdefault(method, [0.0, 0.0])
    turn = cycle(range(SAMPLED))
    itself = min(-(time.thread_time() - time.thread_time()) for _ in range(1000))

    @functools.wraps(original)
    def sampled(*args: Any) -> Any:
        if next(turn):
            return original(*args)
        cpu = time.thread_time()
        try:
            return original(*args)
        finally:
            spent[0] += (time.thread_time() - cpu - itself) * SAMPLED

    setattr(owner, method, sampled)


def _spent_by_threads() -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    for task in Path("/proc/self/task").iterdir():
        name = names.get(int(task.name), "other").rpartition("_")[0] or names.get(int(task.name), "other")
        name = name.removesuffix("-default")
        try:
            spent_here = int((task / "schedstat").read_text().split()[0]) * NANOSECOND
        except OSError:  # it has just ended
            continue
        found.setdefault(name, [0.0, 0.0])[0] += spent_here
    return found


def _note() -> None:
    path = notes.FOLDER / f"layers-{os.getpid()}"
    while True:
        time.sleep(EVERY)
        found = {"runs": notes._notes.count, "spent": _spent | _spent_by_threads()}
        path.with_suffix(".new").write_text(json.dumps(found))
        path.with_suffix(".new").replace(path)


def start(store: type) -> None:
    """Watch the layers over a kind of store, and note what they cost."""
    watch(RecordStore, "claim", "store.claim")
    watch(RecordStore, "settle", "store.settle")
    watch(store, "_claim_rows")
    watch(store, "_settle_rows")
    sample(store, "pack_outcome")
    watch(StoreLink, "begin")
    watch(StoreLink, "end")
    watch(ThreadPoolExecutor, "submit")
    watch(WorkerTick, "_settle")
    watch(HeartbeatTick, "__call__", "heartbeat")
    watch(JanitorTick, "__call__", "janitor")
    threading.Thread(target=_note, name="other", daemon=True).start()
