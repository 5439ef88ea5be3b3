"""Runs that are not there yet: steps that a chain has not come to, hooks of runs that have not ended."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from mainspring.core.followups import MOST_STEPS, is_hook, predecessors
from mainspring.core.run import FINAL, Run, Status
from mainspring.errors import RunNotFound
from mainspring.jobstores.base import JobStore

__all__ = ["ExpectedRuns", "RunsById"]

RunsById = dict[str, Run | None]
"""Runs as one look has seen them."""

STEPS_READ_AHEAD: Final = 16
"""Steps of a chain that are looked at together: each that is there has to be read with all that come after it."""


class ExpectedRuns:
    """Tells whether runs that are not there will come, look after look."""

    def __init__(self) -> None:
        self._ahead: dict[str, tuple[str, int]] = {}
        """Of each such run: the unfinished one that it follows, and how many steps come after it."""

    def expect(self, run_ids: Iterable[str], seen: RunsById, store: JobStore) -> Run | None:
        """Raise RunNotFound if one of these will not come; return the run that breaks a chain instead, if one does."""
        after: dict[str, int] = {}
        for run_id in run_ids:
            steps = self._steps_after(run_id, after, seen, store)
            if isinstance(steps, Run):
                return steps
            after[run_id] = steps
        return None

    def _steps_after(self, run_id: str, after: dict[str, int], seen: RunsById, store: JobStore) -> int | Run:
        """Return how many steps come after a run that will come; `after` tells that of those before it."""
        ahead, left = self._ahead.get(run_id, ("", 0))
        if ahead and (run := _read(ahead, 1, seen, store)) is not None and run.status not in FINAL:
            return left
        follower = run_id
        for steps, before in enumerate(predecessors(run_id), start=0 if is_hook(run_id) else 1):
            if before in after:
                left = after[before] - steps
                if left < 0:
                    raise _not_followed(run_id, before)
                return left
            run = _read(before, STEPS_READ_AHEAD, seen, store)
            if run is None:
                follower = before
            elif run.status in FINAL:
                return _after_end(run_id, run, follower, store)
            else:
                left = len(run.policy.then) - steps
                if left < 0 or (is_hook(follower) and run.policy.hook is None):
                    raise _not_followed(run_id, before)
                self._ahead[run_id] = before, left
                return left
        if any(store.get_runs([run_id, *islice(predecessors(run_id), MOST_STEPS)])):
            return MOST_STEPS  # they come and go between two looks
        raise RunNotFound(run_id)


def _read(run_id: str, number: int, seen: RunsById, store: JobStore) -> Run | None:
    """Return a run, looking at some before it, too, if it has not been seen."""
    if run_id not in seen:
        some = [run_id, *islice(predecessors(run_id), number - 1)]
        seen.update(zip(some, store.get_runs(some), strict=True))
    return seen[run_id]


def _after_end(run_id: str, run: Run, follower: str, store: JobStore) -> int | Run:
    """Judge by a run that has ended, the last that was there before its follower."""
    if run.status is not Status.SUCCEEDED and not is_hook(follower):
        return run  # the chain is broken
    # A follow-up is added in the same write as the end of its run, so it is there by now, or gone again.
    if store.get_runs([follower])[0] is None:
        raise RunNotFound(run_id)
    return MOST_STEPS


def _not_followed(run_id: str, before: str) -> RunNotFound:
    return RunNotFound(run_id, f"run {before!r} is not followed by it")
