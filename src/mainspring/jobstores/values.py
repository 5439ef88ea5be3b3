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
    """The answers of a store, one for each item of a batch; `refused` are the ids of the runs that the call refused."""

    refused: tuple[str, ...]

    def __init__(self, answers: Iterable[T] = (), refused: Iterable[str] = ()) -> None:
        super().__init__(answers)
        self.refused = tuple(refused)


class Hold(StrEnum):
    """The answer of `extend` for one claim."""

    HELD = "held"
    LOST = "lost"
    CANCEL = "cancel"  # still held, but somebody asked to stop it


class DuePage(msgspec.Struct):
    """A page of due jobs, the store's now, and when the next job after the page comes due."""

    now: int
    jobs: list[DueJob]
    next_at: int | None


class ClaimedRuns(msgspec.Struct):
    """Runs leased to a node, most urgent first within a want; the store's now; when the next run is due."""

    now: int
    runs: list[Run]
    next_at: int | None


class RunStanding(msgspec.Struct, frozen=True, gc=False):
    """The status of a run, and the run that refused it, for those who wait for its end."""

    status: Status
    refused: str | None = None


SILENT_SECONDS: Final = 3.75
"""With the default lease, a node is silent after this time: a page then shows the death of one within six seconds."""
WORDS_MISSING: Final = 3
"""A node is silent once this many of its heartbeats are missing."""


def word_seconds(lease: float) -> float:
    """Return how often a node says that it lives: at least twelve times per lease, if that is a usual one.

    A longer lease lets nodes stand still for longer; with a short one, it is as often as makes sense.
    """
    return max(lease / 4, min(SILENT_SECONDS, lease * 2 / 3)) / WORDS_MISSING


class NodeRun(msgspec.Struct, frozen=True):
    """A run that a node executes, and since when."""

    id: str
    started_at: int


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A node as it announces itself; the store sets `beat_at`."""

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
    slots: int = 0  # runs that it can execute at once; an executor without a limit counts what it executes
    busy: int = 0
    runs: tuple[NodeRun, ...] = ()  # some of those it executes
    done: int = 0  # runs that it has ended
    rss: int = 0  # bytes of memory, 0 where the system does not say
    every: float = 0.0  # seconds from one word of it to the next; 0 if it does not say
    beat_at: int = 0

    def seen_at(self, now: int, lease: float) -> NodeInfo:
        """Return the node with its state at `now`: `silent` once three of its words are missing."""
        silent = now - self.beat_at > WORDS_MISSING * (self.every or lease * 2 / 9) * SECOND
        return _with(self, state="silent") if silent else self


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A queue and its contents; `oldest_at` is the run time of the run that has been due longest."""

    name: str
    waiting: int = 0
    delayed: int = 0
    blocked: int = 0
    running: int = 0
    limit: int | None = None  # runs at once; 0 or less: it is paused, -10 with a limit of 10 afterwards
    oldest_at: int | None = None

    @property
    def paused(self) -> bool:
        """Whether it is paused."""
        return self.limit is not None and self.limit <= 0


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a store: its queues, how many runs ever reached each final status, the number of jobs.

    `limits` are the numbers that `set_gate` gave to other gates than those of queues.

    For a query, a store sets only `matching`, the number of matching runs.
    """

    queues: list[QueueInfo] = []
    totals: dict[str, int] = {}
    jobs: int = 0
    limits: dict[str, int] = {}
    matching: int = 0
    complete: bool = True  # for a query with a cap: whether every run was looked at that may match


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selects runs that match every given field; or the `lapsed` ones, which are running after their lease ended.

    `after` is the id of a run: it selects the runs that come after it. `gate` selects the unfinished runs of a gate.
    """

    status: tuple[Status, ...] = ()
    queue: str | None = None
    group: str | None = None
    job_id: str | None = None
    after: str | None = None
    gate: str | None = None
    lapsed: bool = False
    since: int | None = None  # runs that were made before are not wanted: a store may stop there, its caller drops them
    cap: int | None = None  # who counts wants to know no more than that there are more: a store may stop there

    def selects(self, run: Run) -> bool:
        """Return True if a run matches by its own record; `after` and `lapsed` are for the store to judge."""
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
        """Return True if this part has lost nothing since `before`; a part that was recreated or rolled back has."""
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
