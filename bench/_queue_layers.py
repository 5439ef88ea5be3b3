"""A stop-watch at the borders of the layers of mainspring's worker: what a run costs, and where.

The watch is read once per batch, never once per run, so that it does not measure itself.
"""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import _queue_notes as notes
from mainspring.executors.threads.pool import ThreadPoolExecutor
from mainspring.jobstores.records.store import RecordStore
from mainspring.node.claiming import WorkerTick
from mainspring.node.heartbeat import HeartbeatTick
from mainspring.node.janitor import JanitorTick
from mainspring.node.store_link import StoreLink

HERTZ = os.sysconf("SC_CLK_TCK")
EVERY = 0.1

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


def _spent_by_threads() -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    for task in Path("/proc/self/task").iterdir():
        name = names.get(int(task.name), "other").rpartition("_")[0] or names.get(int(task.name), "other")
        name = name.removesuffix("-default")
        try:
            fields = (task / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        spent = found.setdefault(name, [0.0, 0.0])
        spent[0] += (int(fields[11]) + int(fields[12])) / HERTZ
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
    watch(StoreLink, "begin")
    watch(StoreLink, "end")
    watch(ThreadPoolExecutor, "submit")
    watch(WorkerTick, "_settle")
    watch(HeartbeatTick, "__call__", "heartbeat")
    watch(JanitorTick, "__call__", "janitor")
    threading.Thread(target=_note, name="other", daemon=True).start()
