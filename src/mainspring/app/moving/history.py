"""Copy ended runs with their results: nothing is executed, and the source keeps its records.

The contract has no verb that adds an ended run. So the copy is first added as a waiting run, held so that no node
starts it. Then it is settled with its end.
"""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.app.moving.marks import ARRIVING_AT, ended, has_moved, is_held, unfinished_copy
from mainspring.app.moving.units import is_unreadable
from mainspring.core.run import Run
from mainspring.jobstores.base import JobStore

__all__ = ["copy_ended"]


def copy_ended(target: JobStore, runs: Sequence[Run]) -> int:
    """Copy the ended runs that the target lacks; return how many."""
    chosen = {run.id: run for run in runs if not has_moved(run) and not is_unreadable(run)}
    if not chosen:
        return 0
    there = dict(zip(chosen, target.get_runs(list(chosen)), strict=True))
    new = [unfinished_copy(run) for run_id, run in chosen.items() if there[run_id] is None]
    if new:
        target.add_runs(new)
    held = [run_id for run_id, copy in there.items() if copy is None or is_held(copy, ARRIVING_AT)]
    return sum(target.settle([ended(chosen[run_id]) for run_id in held])) if held else 0
