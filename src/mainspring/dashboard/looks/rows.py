"""Table rows for runs: all cells of a run, ready for templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mainspring.core.insight.run_texts import kind_of, says, took_of, waited_of
from mainspring.core.references import parameters_of
from mainspring.core.run import FINAL, UNFINISHED, Status
from mainspring.core.showing.searching import function_of
from mainspring.dashboard.looks.values import arguments_text, percent

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.core.showing.run_view import RunView

__all__ = ["ProgressShare", "RunLine", "progress_of", "run_row"]

SAYS_CHARS: Final = 300
CANCELLABLE: Final = UNFINISHED
RETRYABLE: Final = (Status.FAILED, Status.CANCELLED, Status.BROKEN)


class ProgressShare(NamedTuple):
    """The progress of a run: a share if its total is known, and a text."""

    share: float | None
    text: str


class RunLine(NamedTuple):
    """One run in a table."""

    run: RunView
    kind: str
    word: str
    module: str
    name: str
    arguments: str
    says: str
    progress: ProgressShare | None
    starts: str
    waited: float | None
    took: float | None
    can_retry: bool
    can_cancel: bool


def run_row(app: Mainspring, run: RunView, now: int) -> RunLine:
    """Return the table row of a run."""
    kind, progress = kind_of(run, now), progress_of(run)
    running = run.status is Status.RUNNING
    word = kind
    if running and run.cancelling:
        word = "stopping"
    elif running and progress is not None and progress.share is not None:
        word = percent(progress.share)
    module, _, name = run.task.rpartition(":")
    return RunLine(
        run=run,
        kind=kind,
        word=word,
        module=f"{module}:" if module else "",
        name=name,
        arguments=_arguments(run, function_of(app.runs, run)),
        says="" if running and progress is not None else _says(run)[:SAYS_CHARS],
        progress=progress if running else None,
        starts=_starts(run),
        waited=waited_of(run, now),
        took=took_of(run, now),
        can_retry=run.status in RETRYABLE,
        can_cancel=run.status in CANCELLABLE,
    )


def _says(run: RunView) -> str:
    """Return the remark about a run; an exception appears without its module."""
    text = says(run)
    if run.status is Status.SUCCEEDED or not run.errors:
        return text
    full = run.errors[-1].type
    return full.rpartition(".")[2] + text.removeprefix(full) if text.startswith(full) else text


def _arguments(run: RunView, func: Callable[..., Any] | None) -> str:
    if run.status is Status.BROKEN and not run.args and not run.kwargs:
        return ""
    names = _names(func)[: len(run.args)]
    named = dict(zip(names, run.args, strict=False))
    return arguments_text(run.args[len(names) :], {**named, **run.kwargs}, None if named else func)


def _names(func: Callable[..., Any] | None) -> list[str]:
    """Return the names of the positional parameters, to show arguments by name."""
    return [each.name for each in parameters_of(func).values() if each.kind is each.POSITIONAL_OR_KEYWORD]


def _starts(run: RunView) -> str:
    """Return the counted starts, the interrupted ones, and the allowed number: `3+1 / 3`."""
    if run.status is Status.MISSED:
        return ""
    lost = min(run.attempt, run.interruptions)
    return f"{run.attempt - lost}{f'+{lost}' if lost else ''} / {run.policy.retries + 1}"


def progress_of(run: RunView) -> ProgressShare | None:
    """Return the progress that a run reports."""
    told = run.progress
    if told is None:
        return None
    if isinstance(told, float) and 0 <= told <= 1:
        return ProgressShare(told, "done" if run.status in FINAL else "so far")
    if not isinstance(told, dict) or not isinstance(told.get("done"), int | float):
        return ProgressShare(None, str(told)[:200])
    done, total, text = told["done"], told.get("total"), str(told.get("text") or "")
    if not isinstance(total, int | float) or total <= 0:
        return ProgressShare(None, f"{done:,g} {text}".strip())
    share = min(1.0, max(0.0, done / total))
    if run.status in FINAL and run.status is Status.SUCCEEDED and share > 0.999:
        share = 1.0
    return ProgressShare(share, f"{_figure(done)} of {_figure(total)} {text}".strip())


def _figure(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:,.6g}"
