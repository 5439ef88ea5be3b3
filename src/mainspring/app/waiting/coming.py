"""Runs that do not exist yet: chain steps not yet reached, and hooks of unfinished runs."""

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
"""Runs by id, as one poll has read them."""

STEPS_READ_AHEAD: Final = 16
"""Read this many steps of a chain at a time: the record of a step holds all later steps, too."""


class ExpectedRuns:
    """Tells, poll after poll, whether runs that do not exist yet will come."""

    def __init__(self) -> None:
        self._ahead: dict[str, tuple[str, int]] = {}
        """For each such run: the unfinished run before it, and how many steps come after it."""

    def expect(self, run_ids: Iterable[str], seen: RunsById, store: JobStore) -> Run | None:
        """Raise RunNotFound if one of these runs will never exist; return the failed run if a chain is broken."""
        after: dict[str, int] = {}
        for run_id in run_ids:
            steps = self._steps_after(run_id, after, seen, store)
            if isinstance(steps, Run):
                return steps
            after[run_id] = steps
        return None

    def _steps_after(self, run_id: str, after: dict[str, int], seen: RunsById, store: JobStore) -> int | Run:
        """Return how many steps follow a run that will come; `after` has that number for earlier runs."""
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
            return MOST_STEPS  # runs come and go between two polls
        raise RunNotFound(run_id)


def _read(run_id: str, number: int, seen: RunsById, store: JobStore) -> Run | None:
    """Return a run; if it was not read yet, read some earlier steps with it."""
    if run_id not in seen:
        some = [run_id, *islice(predecessors(run_id), number - 1)]
        seen.update(zip(some, store.get_runs(some), strict=True))
    return seen[run_id]


def _after_end(run_id: str, run: Run, follower: str, store: JobStore) -> int | Run:
    """Decide by the last existing run before `run_id`, which has ended: return it if it broke the chain."""
    if run.status is not Status.SUCCEEDED and not is_hook(follower):
        return run  # the chain is broken
    # The end of a run and its follow-up are one write, so the follow-up exists by now or was deleted again.
    if store.get_runs([follower])[0] is None:
        raise RunNotFound(run_id)
    return MOST_STEPS


def _not_followed(run_id: str, before: str) -> RunNotFound:
    return RunNotFound(run_id, f"it does not follow run {before!r}")
