"""Turn a finished run into its result or an error, for the caller that waits for it. Pure."""

from __future__ import annotations

from typing import Any, Final

from mainspring.core.run import Run, Status
from mainspring.errors import RunCancelled, RunFailed, UnverifiedOutcome

__all__ = ["outcome_of", "result_of"]

TRACEBACK_CHARS_PASSED: Final = 2000
"""Keep this many of the last characters of the traceback when an error is passed on as a value."""


def result_of(run: Run) -> Any:
    """Return the result of a finished run; raise RunFailed, RunCancelled or UnverifiedOutcome."""
    if run.unverified is not None:
        raise UnverifiedOutcome(run.id, run.status.value, run.unverified)
    if run.status is Status.SUCCEEDED:
        return run.result
    if run.status is Status.CANCELLED:
        raise RunCancelled(run.id, run.reason or "")
    last = run.errors[-1] if run.errors else None
    if last is None:
        raise RunFailed(run.id, run.status.value, run.reason or "", "")
    raise RunFailed(run.id, last.type, last.message, last.traceback)


def outcome_of(run: Run) -> Any:
    """Return the result of a finished run, or the error that ended it; raise only UnverifiedOutcome."""
    try:
        return result_of(run)
    except RunCancelled as error:
        return error.with_traceback(None)
    except RunFailed as error:
        return RunFailed(error.run_id, error.type, error.message, error.traceback[-TRACEBACK_CHARS_PASSED:])
