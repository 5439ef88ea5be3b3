"""Replace the placeholders in the arguments of claimed runs by the results of other runs.

The process that claimed the runs does this before an executor gets them. So it works the same for threads, child
processes and event loops, and only this process needs the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, Final, NoReturn

from msgspec.structs import replace

from mainspring.core.run import After, Run
from mainspring.core.waiting.flows import is_helper
from mainspring.core.waiting.followups import finished_run
from mainspring.core.waiting.placeholders import fill, needed_runs
from mainspring.core.waiting.results import outcome_of
from mainspring.errors import MissingInput, UnverifiedOutcome
from mainspring.jobstores.base import JobStore

__all__ = ["fill_inputs", "read_inputs"]

READ_RUNS: Final = 1000
"""Read this many runs in one round trip."""


def read_runs(store: JobStore, run_ids: Sequence[str]) -> dict[str, Run | None]:
    """Return the runs with these ids, by id; None for a deleted run."""
    found: dict[str, Run | None] = {}
    for start in range(0, len(run_ids), READ_RUNS):
        part = run_ids[start : start + READ_RUNS]
        found.update(zip(part, store.get_runs(part), strict=True))
    return found


def fill_inputs(store: JobStore, runs: Sequence[Run]) -> list[Run]:
    """Return runs with results in place of placeholders; a run without one of its results raises that when called."""
    found = read_runs(store, list(dict.fromkeys(run_id for run in runs for run_id in needed_runs(run))))
    filled, used = [], set[str]()
    for run in runs:
        needed = needed_runs(run)
        # Copy a result that several runs use, since each run may change it; a memory store shares objects anyway.
        again = () if store.keeps_objects else used.intersection(needed)
        used.update(needed)
        filled.append(_filled(run, {**found, **{run_id: _copied(found[run_id]) for run_id in again}}))
    return filled


def read_inputs(store: JobStore, run: Run) -> list[Any]:
    """Return the results of the runs that a run came after, or their errors, in the order of its `after`."""
    known: dict[str, Run | None] = {}

    def behind_joins(edges: Iterable[After]) -> Iterator[Run]:
        """Yield the runs at the start of these edges; replace a join by the runs before it, and skip markers."""
        ids = [edge.id for edge in edges]
        known.update(read_runs(store, [run_id for run_id in ids if run_id not in known]))
        for run_id in ids:
            before = known[run_id]
            if before is None:
                raise MissingInput(run_id)
            if not is_helper(before):
                yield before
            else:
                yield from behind_joins(before.after)

    return [outcome_of(each) for each in {each.id: each for each in behind_joins(run.after)}.values()]


def _copied(run: Run | None) -> Run | None:
    return None if run is None else replace(run, result=deepcopy(run.result))


def _filled(run: Run, found: Mapping[str, Run | None]) -> Run:
    try:
        return replace(run, call=fill(run.call, found, finished_run))
    except (MissingInput, UnverifiedOutcome) as error:
        return replace(run, call=replace(run.call.found(partial(_fail, error)), args=(), kwargs={}, unfilled=run.call))


def _fail(error: Exception) -> NoReturn:
    raise error
