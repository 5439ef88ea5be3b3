"""Lanes split a queue by executor, so that no run waits behind runs for another executor that is busy.

The queue and the executor of a run determine its lane. In the queue `mail`, the lane `mail:async` holds the runs for
the event loop and `mail:process` those for processes. The lane `mail` holds the runs for threads, and the runs whose
executor is not known yet. A node claims each lane for the free slots of one executor. Only stores and claims use lanes;
people see the queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

__all__ = [
    "LOOP_EXECUTOR",
    "PROCESSES_EXECUTOR",
    "QUEUE_EXECUTORS",
    "THREADS_EXECUTOR",
    "Want",
    "executor_of",
    "lane_of",
    "lanes_of",
    "needed_executor",
    "queue_of",
]

THREADS_EXECUTOR: Final = "threads"
LOOP_EXECUTOR: Final = "loop"
PROCESSES_EXECUTOR: Final = "processes"
"""The executor for isolated runs, and for runs that have crashed a worker before."""
QUEUE_EXECUTORS: Final = (THREADS_EXECUTOR, LOOP_EXECUTOR, PROCESSES_EXECUTOR)
"""The executors that share the runs of a queue."""

_ENDINGS: Final = {LOOP_EXECUTOR: ":async", PROCESSES_EXECUTOR: ":process"}
_EXECUTORS: Final = {ending: executor for executor, ending in _ENDINGS.items()}

_NAMES_KNOWN: Final = 10_000
"""Cache this many names: a node looks up the same few for every run."""

Want = tuple[Sequence[str], int]
"""Some lanes, and the most runs that a claim takes from them together."""


@lru_cache(_NAMES_KNOWN)
def lane_of(queue: str, executor: str | None) -> str:
    """Return the lane for the runs of a queue that need an executor.

    A queue whose name begins with `.` or `!` has only one lane.
    """
    ending = _ENDINGS.get(executor) if executor is not None else None
    return queue if ending is None or queue[:1] in (".", "!") else queue + ending


def needed_executor(is_async: bool, isolation: str | None) -> str | None:
    """Return the executor that a function needs; None if threads can execute it."""
    return PROCESSES_EXECUTOR if isolation == "process" else LOOP_EXECUTOR if is_async else None


def lanes_of(queue: str) -> tuple[str, ...]:
    """Return all lanes of a queue."""
    return tuple(dict.fromkeys(lane_of(queue, executor) for executor in QUEUE_EXECUTORS))


@lru_cache(_NAMES_KNOWN)
def queue_of(lane: str) -> str:
    """Return the queue of a lane."""
    ending = _ending(lane)
    return lane[: -len(ending)] if ending else lane


@lru_cache(_NAMES_KNOWN)
def executor_of(lane: str) -> str | None:
    """Return the executor that a lane is for; None if its name does not say."""
    return _EXECUTORS.get(_ending(lane))


def _ending(lane: str) -> str:
    if ":" not in lane or lane[:1] in (".", "!"):
        return ""
    return next((ending for ending in _EXECUTORS if lane.endswith(ending)), "")
