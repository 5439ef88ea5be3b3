"""Describe a run in one line: its status, its call, how long it took, and a remark. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mainspring.core.run import FINAL, Run, Status
from mainspring.core.showing.redaction import masked_text
from mainspring.core.showing.run_view import RunView

__all__ = ["arguments_text", "kind_of", "late_of", "says", "shown_call", "starts_text", "took_of", "waited_of"]


def kind_of(run: RunView, now: int) -> str:
    """Return the status of a run in one word; a pending one is waiting, delayed or retrying."""
    if run.status is not Status.PENDING:
        return str(run.status)
    return "retrying" if run.failures else "delayed" if run.record.run_at > now else "waiting"


def took_of(run: RunView, now: int) -> float | None:
    """Return how many seconds a run took, or has taken so far."""
    if run.status is Status.RUNNING and run.record.started_at is not None:
        return max(0, now - run.record.started_at) / 1e6
    return run.duration


def waited_of(run: RunView, now: int) -> float | None:
    """Return how many seconds a run waited for its first start, or has waited so far for its next one."""
    record = run.record
    if record.status is Status.PENDING:
        return max(0, now - record.run_at) / 1e6 if record.run_at <= now else None
    return late_of(run)


def late_of(run: RunView) -> float | None:
    """Return how many seconds after its time a run first started; a retry has another time, and is not late."""
    record = run.record
    due, began = record.run_at, record.started_at
    if record.earlier_starts:
        due, began = record.fire_time or record.created_at, record.earlier_starts[0].started_at
    return None if began is None else max(0, began - due) / 1e6


def starts_text(run: Run) -> str:
    """Say how often a run has started, and how many starts ended badly, by kind."""
    ends = ((run.failures, "failed"), (run.crashes, "crashed"), (run.interruptions, "interrupted"))
    bad = ", ".join(f"{number} {word}" for number, word in ends if number)
    return f"{run.attempt}: {bad}" if bad else str(run.attempt)


def says(run: RunView) -> str:
    """Return the remark about a run: its last error, its reason or its progress."""
    if run.status is not Status.SUCCEEDED and run.errors:
        return str(run.errors[-1])
    if run.reason:
        return run.reason
    return "" if run.progress is None or run.status in FINAL else f"progress {run.progress}"


def arguments_text(run: RunView, func: Callable[..., Any] | None) -> str:
    """Return the arguments of a run's call to show, with secrets masked."""
    return masked_text(run.args, run.kwargs, func)


def shown_call(run: RunView, func: Callable[..., Any] | None) -> str:
    """Return the call of a run to show: its name and arguments, with secrets masked."""
    return f"{run.name or run.task}({arguments_text(run, func)})"
