"""The hook of a run: a separate run that comes after it, however it ends. Pure.

A store adds a run and its hook together. So the hook follows, whichever node ends the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mainspring.core.instants import from_us
from mainspring.core.run import ON, After, Call, Run, Status
from mainspring.core.waiting.placeholders import RUN, Placeholder

__all__ = [
    "FinishedRun",
    "finished_run",
    "hook_id",
    "hook_of",
    "is_hook",
    "with_hooks",
]


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that has ended, as its hook sees it."""

    id: str
    name: str
    func: str
    args: tuple[Any, ...] = field(repr=False)  # a log of the run must not show secrets
    kwargs: Mapping[str, Any] = field(repr=False)
    status: str
    result: Any = field(default=None, repr=False)
    error: str | None = None
    traceback: str | None = field(default=None, repr=False)
    group: str | None = None
    job_id: str | None = None
    queue: str = "default"
    attempt: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def success(self) -> bool:
        """Whether it succeeded."""
        return self.status == Status.SUCCEEDED.value

    # -- django-q's names --------------------------------------------------------------------------------------

    @property
    def cluster(self) -> str:
        """Its queue."""
        return self.queue

    @property
    def started(self) -> datetime | None:
        """When its last attempt started."""
        return self.started_at

    @property
    def stopped(self) -> datetime | None:
        """When it ended."""
        return self.finished_at

    @property
    def attempt_count(self) -> int:
        """How often it was started."""
        return self.attempt

    def time_taken(self) -> float:
        """Return the seconds from its last start to its end."""
        begun, ended = self.started_at, self.finished_at
        return 0.0 if begun is None or ended is None else (ended - begun).total_seconds()


def finished_run(run: Run) -> FinishedRun:
    """Convert the record of a finished run to the form that its hook gets."""
    last = run.errors[-1] if run.errors and run.status is not Status.SUCCEEDED else None
    return FinishedRun(
        id=run.id,
        name=run.name,
        func=run.call.task_name,
        args=run.args,
        kwargs=dict(run.kwargs),
        status=run.status.value,
        result=run.result,
        error=run.reason if last is None else f"{last.type}: {last.message}",
        traceback=None if last is None else last.traceback,
        group=run.group,
        job_id=run.job_id,
        queue=run.queue,
        attempt=run.attempt,
        started_at=None if run.started_at is None else from_us(run.started_at),
        finished_at=None if run.finished_at is None else from_us(run.finished_at),
    )


def hook_of(run: Run) -> Run | None:
    """Return the hook for a run that is added or sent back, or None. Each time it is sent back, it gets a new hook."""
    hook = run.policy.hook
    if hook is None:
        return None
    return Run(
        id=hook_id(run),
        call=Call(hook, (Placeholder(run.id, RUN),), {}, f"hook of {run.name}", inputs=1),
        queue=run.queue,
        executor=run.executor if run.queue.startswith(".") else None,  # a hook is another function
        status=Status.BLOCKED,
        priority=run.priority,
        created_at=run.created_at,
        run_at=run.created_at,
        after=(After(run.id, ON["end"]),),
    )


def hook_id(run: Run) -> str:
    """Return the id of the hook of a run; a run that is sent back gets a new hook, with the next number."""
    return f"{run.id}~hook{run.retried + 1 if run.retried else ''}"


def is_hook(run: Run) -> bool:
    """Return True if a run is the hook of another."""
    return run.call.inputs == 1 and run.call.args == (Placeholder(run.after[0].id, RUN),) if run.after else False


def with_hooks(runs: Iterable[Run]) -> list[Run]:
    """Return the runs to add, each followed by its hook; a run that is already packed gets none."""
    found: list[Run] = []
    for run in runs:
        found.append(run)
        hook = hook_of(run) if isinstance(run, Run) and run.policy.hook is not None else None
        if hook is not None:
            found.append(hook)
    return found
