"""Find the runs that move together: a single run, or all unfinished runs that come before or after each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from mainspring.app.moving.marks import LEAVING_AT, is_held
from mainspring.core.run import FINAL, Run, Status, is_local
from mainspring.core.waiting.flows import MARKER_TASK
from mainspring.core.waiting.refusals import in_order
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.jobstores.finding import pages

__all__ = ["RUNNING", "UNDERWAY", "Unit", "is_unreadable", "units"]

UNDERWAY: Final = "runs of flows that are underway; move again when their running runs have ended"
RUNNING: Final = "runs that run; they end where they are"


@dataclass
class Unit:
    """Unfinished runs that move together, predecessors first, and the ended runs that they come after."""

    runs: list[Run]
    ended: list[Run] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        """The ids of the unfinished runs."""
        return [run.id for run in self.runs]

    def stays(self) -> str:
        """Return why the runs are not moved now; an empty text if they are."""
        if any(is_local(run.queue) for run in self.runs):
            return "runs for an executor of a scheduler"
        if any(map(is_unreadable, (*self.runs, *self.ended))):
            return "runs that cannot be read here"
        if any(run.call.task_name == MARKER_TASK for run in self.runs):
            return "runs of flows that are being stored"
        if any(run.refused is not None for run in self.runs):
            return "runs that come after a failed one; a worker cancels them"
        if any(run.status is Status.RUNNING for run in self.runs):
            return UNDERWAY if len(self.runs) > 1 else RUNNING
        return ""

    def is_frozen(self, now_read: Sequence[Run | None]) -> bool:
        """Return True if none of the runs can start at the source; `now_read` are their records after the hold."""
        return all(
            new is not None
            and new.followed == old.followed
            and (is_held(new, LEAVING_AT) or (new.status is Status.BLOCKED and new.waits > 0))
            for old, new in zip(self.runs, now_read, strict=True)
        )


def is_unreadable(run: Run) -> bool:
    """Return True if this app cannot read a run, or cannot verify its outcome."""
    return run.unverified is not None or (run.call.name == "?" and not run.call.func)


def units(store: JobStore, runs: Iterable[Run], seen: set[str]) -> Iterator[Unit]:
    """Yield the units of waiting runs, each unit once."""
    for run in runs:
        if run.id in seen:
            continue
        unit = _connected(store, run) if run.after or run.followed else Unit([run])
        seen.update(unit.ids)
        yield unit


def _connected(store: JobStore, run: Run) -> Unit:
    runs: dict[str, Run] = {}
    ended: dict[str, Run] = {}
    left = [run]
    while left:
        each = left.pop()
        if each.id in runs or each.id in ended:
            continue
        if each.status in FINAL:
            ended[each.id] = each
            continue
        runs[each.id] = each
        before = [edge.id for edge in each.after]
        left += [found for found in (store.get_runs(before) if before else ()) if found is not None]
        if each.followed:
            left += [
                found for page in pages(store, RunQuery(after=each.id)) for found in page if found.status not in FINAL
            ]
    return Unit(in_order(runs.values()), list(ended.values()))
