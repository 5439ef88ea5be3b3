"""The values that pass between a store and its callers: queries, pages of jobs and runs, nodes, queues and counts."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace as _with

from mainspring.core.instants import SECOND
from mainspring.core.job import Job
from mainspring.core.plan import DueJob
from mainspring.core.run import FINAL, Run, Status

__all__ = [
    "Answers",
    "BrokenJob",
    "ClaimedRuns",
    "DuePage",
    "Generation",
    "Hold",
    "JobList",
    "NodeInfo",
    "NodeRun",
    "QueueInfo",
    "RunQuery",
    "RunStanding",
    "Stats",
]


T = TypeVar("T")


class Answers(list[T]):
    """The answers of a store, one for each item of a batch.

    `refused` holds the ids of runs that the call refused, `waiting` those of fired runs that it did not lease.
    """

    refused: tuple[str, ...]
    waiting: tuple[str, ...]

    def __init__(self, answers: Iterable[T] = (), refused: Iterable[str] = (), waiting: Iterable[str] = ()) -> None:
        super().__init__(answers)
        self.refused = tuple(refused)
        self.waiting = tuple(waiting)


class Hold(StrEnum):
    """The answer of `extend` for one claim."""

    HELD = "held"
    LOST = "lost"
    CANCEL = "cancel"  # still held, but marked to be stopped


class DuePage(msgspec.Struct):
    """A page of due jobs, the store's now, and the time when the next job after the page comes due."""

    now: int
    jobs: list[DueJob]
    next_at: int | None


class ClaimedRuns(msgspec.Struct):
    """Runs leased to a node, most urgent first within a want; the store's now; the time when the next run is due."""

    now: int
    runs: list[Run]
    next_at: int | None


class RunStanding(msgspec.Struct, frozen=True, gc=False):
    """The status of a run, and the id of the run that refused it, for callers that wait for its end."""

    status: Status
    refused: str | None = None


IDS_REMEMBERED_US: Final = 3600 * SECOND
"""Every store remembers the id of a deleted run for at least this long, so that no new run gets it."""
SILENT_SECONDS: Final = 3.75
"""Call a node with the default lease silent after this many seconds: a page then shows its death within six."""
MISSING_SIGNS_OF_LIFE: Final = 3
"""Call a node silent once this many of its signs of life are missing."""


def sign_of_life_seconds(lease: float) -> float:
    """Return the seconds between two signs of life of a node: a twelfth of a lease of 15 s or more.

    A longer lease lets nodes stand still for longer. With a shorter lease, the interval is 1.25 s, or two ninths of the
    lease if that is less.
    """
    return max(lease / 4, min(SILENT_SECONDS, lease * 2 / 3)) / MISSING_SIGNS_OF_LIFE


class NodeRun(msgspec.Struct, frozen=True):
    """A run that a node executes, and the time when it started."""

    id: str
    started_at: int


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The announcement of a node; the store sets `beat_at`."""

    id: str
    host: str
    pid: int
    started_at: int
    queues: tuple[str, ...] = ()
    state: str = "running"
    version: str = ""
    missing: tuple[str, ...] = ()  # functions that this node cannot import
    stuck: int = 0  # threads lost to runs that did not end when stopped
    cluster: str = ""  # the sentinel that the process belongs to, as host:pid
    code: str = ""  # the version of the user's code
    slots: int = 0  # runs that it can execute at once; an executor without a limit counts its current runs
    busy: int = 0
    runs: tuple[NodeRun, ...] = ()  # some of the runs that it executes
    done: int = 0  # the number of runs that have ended on it
    rss: int = 0  # bytes of memory, 0 if the system does not report them
    every: float = 0.0  # seconds between two of its signs of life; 0 if unknown
    beat_at: int = 0

    def seen_at(self, now: int, lease: float) -> NodeInfo:
        """Return the node with its state at `now`: `silent` once three of its signs of life are missing."""
        silent = now - self.beat_at > MISSING_SIGNS_OF_LIFE * (self.every or lease * 2 / 9) * SECOND
        return _with(self, state="silent") if silent else self


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A queue and its contents; `oldest_at` is the run time of the run that has been due longest."""

    name: str
    waiting: int = 0
    delayed: int = 0
    blocked: int = 0
    running: int = 0
    limit: int | None = None  # runs at once; 0 or less means paused; -10 means paused, with a limit of 10 afterwards
    oldest_at: int | None = None

    @property
    def paused(self) -> bool:
        """Whether the queue is paused."""
        return self.limit is not None and self.limit <= 0


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a store: its queues, the number of runs that ever reached each final status, the number of jobs.

    `limits` are the numbers that `set_gate` has set for gates other than those of queues.

    In the answer to a query, a store sets only `matching`, the number of matching runs, and `complete`.
    """

    queues: list[QueueInfo] = []
    totals: dict[str, int] = {}
    jobs: int = 0
    limits: dict[str, int] = {}
    matching: int = 0
    complete: bool = True  # for a query with a cap: whether the store looked at every run that may match


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selects the runs that match every given field, or with `lapsed` the running runs whose lease is over.

    `after` is the id of a run: it selects the runs that come after it. `gate` selects the unfinished runs of a gate.
    """

    status: tuple[Status, ...] = ()
    queue: str | None = None
    group: str | None = None
    job_id: str | None = None
    after: str | None = None
    gate: str | None = None
    lapsed: bool = False
    since: int | None = None  # a store may stop at runs made before this instant; the caller drops any that it returns
    cap: int | None = None  # a count may stop above this number

    def selects(self, run: Run) -> bool:
        """Return True if a run's record matches the query; only the store can judge `after` and `lapsed`."""
        return (
            (not self.status or run.status in self.status)
            and (self.queue is None or run.queue == self.queue)
            and (self.group is None or run.group == self.group)
            and (self.job_id is None or run.job_id == self.job_id)
            and (self.gate is None or (run.gate == self.gate and run.status not in FINAL))
        )


class Generation(msgspec.Struct, frozen=True):
    """A part of a store that is atomic in itself: its identity, and the last version that it gave to a job."""

    made: str
    version: int

    def follows(self, before: Generation) -> bool:
        """Return True if this part has lost no data since `before`; recreating or rolling it back loses data."""
        return self.made == before.made and self.version >= before.version


class BrokenJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that could not be restored, kept with its bytes and the reason."""

    id: str
    reason: str
    payload: Any
    at: int


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs in a store: those that can fire, or those that were set aside."""

    jobs: list[Job] = []
    broken: list[BrokenJob] = []
