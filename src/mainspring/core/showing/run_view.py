"""A run as people read it, and pages of runs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, tzinfo
from typing import Any, Final

import msgspec

from mainspring.core.insight.wording import brief
from mainspring.core.instants import from_us
from mainspring.core.policy import Policy
from mainspring.core.run import FINAL, After, Call, Run, Status

__all__ = ["RunError", "RunPage", "RunStart", "RunView"]

_FIELDS: Final = (
    *(
        "id",
        "task",
        "name",
        "status",
        "unverified",
        "reason",
        "queue",
        "job_id",
        "group",
        "priority",
        "attempt",
        "failures",
        "waits",
        "refused",
    ),
    *("created_at", "fire_time", "run_at", "start_by", "started_at", "finished_at", "duration"),
    *("node", "result", "errors", "starts", "progress", "data", "log"),
)


class RunError(msgspec.Struct, frozen=True):
    """A failed attempt of a run: the error, and when it happened."""

    type: str
    message: str
    traceback: str
    at: datetime
    attempt: int

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class RunStart(msgspec.Struct, frozen=True):
    """One start of a run, like `core.run.Start`, with datetimes."""

    number: int
    node: str | None
    claimed_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    how: str | None
    run_at: datetime | None


class RunView:
    """A run as people read it: its times are aware datetimes, its callable is text."""

    __slots__ = ("_run", "_zone")

    # These come from the record unchanged.
    id: str
    status: Status
    unverified: str | None
    reason: str | None
    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    call: Call
    queue: str
    executor: str | None
    job_id: str | None
    group: str | None
    unique: str | None
    policy: Policy
    priority: int
    attempt: int
    failures: int
    crashes: int
    interruptions: int
    node: str | None
    cancelling: bool
    result: Any
    progress: Any
    data: Any
    log: tuple[str, ...]
    count: int
    retried: int
    copied_from: str | None
    after: tuple[After, ...]
    waits: int
    refused: str | None

    def __init__(self, run: Run, zone: tzinfo | None) -> None:
        self._run, self._zone = run, zone

    @property
    def record(self) -> Run:
        """The run as it is stored, times in microseconds."""
        return self._run

    @property
    def task(self) -> str:
        """The task's name, or the function's as `module:name`."""
        return self._run.call.task_name

    func = task

    @property
    def errors(self) -> tuple[RunError, ...]:
        """The errors of all failed attempts that the record keeps, oldest first."""
        return tuple(
            RunError(each.type, each.message, each.traceback, self._moment(each.at), each.attempt)
            for each in self._run.errors
        )

    @property
    def error(self) -> RunError | None:
        """The error of the last failed attempt."""
        return self.errors[-1] if self._run.errors else None

    @property
    def starts(self) -> tuple[RunStart, ...]:
        """Each start: where, when, how it ended, and when the run could be started again; the first 2 and last 18."""
        when = self._optional
        return tuple(
            RunStart(
                each.number, each.node, when(each.claimed_at), when(each.started_at), when(each.ended_at), each.how,
                when(each.run_at),
            )
            for each in self._run.starts
        )  # fmt: skip

    @property
    def finished(self) -> bool:
        """Whether it has ended."""
        return self._run.status in FINAL

    @property
    def created_at(self) -> datetime:
        """When it was made."""
        return self._moment(self._run.created_at)

    @property
    def run_at(self) -> datetime:
        """When it may start. A blocked run with a delay after its predecessors has no such time yet."""
        run = self._run
        return self._moment(run.run_at if run.run_at >= 0 else run.created_at)

    @property
    def fire_time(self) -> datetime | None:
        """The time its job was due."""
        return self._optional(self._run.fire_time)

    @property
    def last(self) -> datetime | None:
        """The last of the fire times that it stands for."""
        return self._optional(self._run.last)

    @property
    def start_by(self) -> datetime | None:
        """The latest time at which it may start; after that it is missed."""
        return self._optional(self._run.start_by)

    @property
    def started_at(self) -> datetime | None:
        """When its last attempt started."""
        return self._optional(self._run.started_at)

    @property
    def finished_at(self) -> datetime | None:
        """When it ended."""
        return self._optional(self._run.finished_at)

    @property
    def lease_until(self) -> datetime | None:
        """When its lease ends unless its node renews it."""
        return self._optional(self._run.lease_until)

    @property
    def duration(self) -> float | None:
        """Seconds from its last start to its end."""
        if self._run.started_at is None or self._run.finished_at is None:
            return None
        return (self._run.finished_at - self._run.started_at) / 1e6

    def to_dict(self) -> dict[str, Any]:
        """Return the run as a dict, without the arguments, which may hold secrets."""
        shown = {name: getattr(self, name) for name in _FIELDS}
        shown["status"] = str(self.status)
        shown["errors"] = [msgspec.structs.asdict(error) for error in self.errors]
        shown["starts"] = [msgspec.structs.asdict(start) for start in self.starts]
        shown["log"] = list(self.log)
        return shown

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copying and pickling look these up before the run is set
            raise AttributeError(name)
        return getattr(self._run, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *RunView.__annotations__})

    def __eq__(self, other: object) -> bool:
        return self._run == other._run if isinstance(other, RunView) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._run.id)

    def _moment(self, us: int) -> datetime:
        return from_us(us).astimezone(self._zone)

    def _optional(self, us: int | None) -> datetime | None:
        return None if us is None else self._moment(us)

    def __repr__(self) -> str:
        run = self._run
        parts = [f"<Run {run.id} {brief(run.name)} {run.status}"]
        if run.unverified is not None:
            parts.append(" unverified")
        if run.reason:
            parts.append(f" ({brief(run.reason)})")
        if self.duration is not None:
            parts.append(f" in {self.duration:.3g} s")
        if run.errors and run.status is not Status.SUCCEEDED:
            parts.append(f": {brief(str(self.error))}")
        return "".join(parts) + ">"


class RunPage(list[RunView]):
    """A page of runs, newest first; `more` says that older ones follow beyond the limit.

    `find(..., after=page[-1])` returns the next page.
    """

    __slots__ = ("more",)

    def __init__(self, runs: Iterable[RunView] = (), *, more: bool = False) -> None:
        super().__init__(runs)
        self.more = more

    @classmethod
    def of(cls, runs: list[Run], limit: int, zone: Callable[[], tzinfo]) -> RunPage:
        """Make a page of at most `limit` runs; an extra run in `runs` shows that there are more."""
        if not runs:
            return cls()
        shown = zone()
        return cls((RunView(run, shown) for run in runs[:limit]), more=len(runs) > limit)
