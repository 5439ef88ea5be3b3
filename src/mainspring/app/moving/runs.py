"""Move waiting runs: hold them at the source, copy them held, end them at the source, let go of the copies.

Before the hold, only the source can start a run; after it is let go, only the target; in between, neither. All runs
that come before or after each other move together, once none of them is running. A successor is ended before its
predecessors, so that their ends do not release or refuse it at the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mainspring.app.moving.history import copy_ended
from mainspring.app.moving.marks import (
    ARRIVING_AT,
    LEAVING_AT,
    arriving,
    at_own_time,
    ended,
    has_moved,
    is_held,
    leaving,
    moved_away,
)
from mainspring.app.moving.units import Unit, units
from mainspring.core.run import FINAL, WAITING, Condition, Outcome, Run, Status
from mainspring.core.waiting.followups import is_hook
from mainspring.core.waiting.refusals import in_order
from mainspring.jobstores.base import JobStore, RunQuery
from mainspring.jobstores.finding import pages

__all__ = ["ENDED", "MOVED_AT_ONCE", "RunMover"]

MOVED_AT_ONCE: Final = 200
_WAITING: Final = RunQuery(status=WAITING)
_PENDING: Final = RunQuery(status=(Status.PENDING,))
ENDED: Final = RunQuery(status=tuple(sorted(FINAL)))


class RunMover:
    """Moves runs from a source to a target."""

    def __init__(self, source: JobStore, target: JobStore) -> None:
        self._source, self._target = source, target
        self.left: set[str] = set()
        """Runs that the target does not take: see `_copy`."""
        self.copied = 0
        """How many ended runs were copied."""

    def finish(self) -> int:
        """Take the last step for copies of an earlier move; return how many runs that moved."""
        moved = 0
        for page in pages(self._target, _PENDING):
            copies = {run.id: run for run in page if is_held(run, ARRIVING_AT)}
            if not copies:
                continue
            originals = self._read(list(copies))
            # No record at the source means that the run was moved more than a week ago; its copy has its real time.
            gone = [run_id for run_id in copies if run_id not in originals]
            moved += self._let_go([*gone, *(run.id for run in originals.values() if has_moved(run))])
            ends = [ended(run) for run in originals.values() if run.status in FINAL and not has_moved(run)]
            if ends:  # copies of ended runs, or of runs that were ended while they were held
                self._target.settle(ends)
            self._drop([copies[run_id] for run_id in gone if at_own_time(copies[run_id]) is copies[run_id]])
        return moved

    def move(self) -> Iterator[int]:
        """Move the waiting runs, page by page; yield the number of runs in each page."""
        while True:
            moved, seen = 0, set(self.left)
            for page in pages(self._source, _WAITING, size=MOVED_AT_ONCE):
                done = self._move(list(units(self._source, page, seen)))
                moved += done
                yield done
            if not moved:  # no run was enqueued meanwhile, and no movable run is left
                return

    def copy_history(self) -> Iterator[int]:
        """Copy the ended runs, page by page; yield the number of runs in each page."""
        for page in pages(self._source, ENDED, size=MOVED_AT_ONCE):
            self.copied += copy_ended(self._target, page)
            yield len(page)

    def _move(self, found: Sequence[Unit]) -> int:
        frozen, others = self._hold(found)
        taken, refused = self._copy(frozen)
        self._give_back([*others, *refused])
        if not taken:
            return 0
        now = self._source.beat()
        runs = self._read([run_id for unit in taken for run_id in unit.ids])
        self._source.settle(
            [moved_away(run, now) for run in reversed(in_order(runs.values())) if run.status in WAITING]
        )
        gone = [run for run in self._read(list(runs)).values() if has_moved(run)]
        self._let_go([run.id for run in gone])
        return sum(not is_hook(run) for run in gone)

    def _hold(self, found: Sequence[Unit]) -> tuple[list[Unit], list[Unit]]:
        """Hold the units that can be moved; return them, and the units with a run that can start or has started."""
        chosen = [unit for unit in found if not unit.stays()]
        others = [unit for unit in found if unit.stays()]
        free = [
            run for unit in chosen for run in unit.runs if not (run.waits or is_held(run, LEAVING_AT))
        ]  # the others wait for these
        if free:
            self._source.settle([leaving(run) for run in free])
        read = self._read([run_id for unit in chosen for run_id in unit.ids])
        frozen: list[Unit] = []
        for unit in chosen:
            records = [read.get(run_id) for run_id in unit.ids]
            (frozen if unit.is_frozen(records) else others).append(unit)
            unit.runs = [run for run in records if run is not None]
        return frozen, others

    def _copy(self, frozen: Sequence[Unit]) -> tuple[list[Unit], list[Unit]]:
        """Add held copies to the target; return the units that it has accepted, and those that it has not.

        The target rejects a run whose id or unique key another run has there, and the runs that come after such a run.
        """
        before = {run.id: run for unit in frozen for run in unit.ended}
        self.copied += copy_ended(self._target, list(before.values()))
        copies = []
        for unit in frozen:
            there = frozenset([*unit.ids, *(run.id for run in unit.ended)])
            copies += [arriving(run, there) for run in unit.runs]
        if copies:
            self._target.add_runs(copies)
        # The answer does not distinguish a copy from a run that the target already had or has forgotten: read them.
        found = self._target.get_runs([copy.id for copy in copies]) if copies else []
        stored = {run.id for run in found if run is not None and _is_copy(run)}
        taken = [unit for unit in frozen if stored.issuperset(unit.ids)]
        refused = [unit for unit in frozen if not stored.issuperset(unit.ids)]
        own = {run.id for run in found if run is not None and is_held(run, LEAVING_AT)}
        for unit in refused:
            self.left.update(unit.ids)
            if not own.intersection(unit.ids):  # otherwise both stores share their runs, and these are not copies
                self._drop([run for run in found if run is not None and run.id in stored.intersection(unit.ids)])
        return taken, refused

    def _drop(self, copies: Sequence[Run]) -> None:
        """Delete copies that are still held."""
        if copies:
            now = self._target.beat()
            self._target.settle([moved_away(run, now) for run in reversed(in_order(copies))])
            self._target.delete_runs([run.id for run in copies])

    def _give_back(self, left: Sequence[Unit]) -> None:
        """Let held runs that are not moved now start at the source again."""
        held = [run for unit in left for run in unit.runs if is_held(run, LEAVING_AT)]
        if held:
            self._source.settle([Outcome(at_own_time(run), Condition.WAITING) for run in held])

    def _let_go(self, run_ids: Sequence[str]) -> int:
        """Give copies their own time; return how many were held."""
        found = self._target.get_runs(run_ids) if run_ids else []
        held = [run for run in found if run is not None and is_held(run, ARRIVING_AT)]
        owned = [run for run in held if at_own_time(run) is not run]  # a copy of an ended run has no time to restore
        if owned:
            self._target.settle([Outcome(at_own_time(run), Condition.WAITING) for run in owned])
        return len(owned)

    def _read(self, run_ids: Sequence[str]) -> dict[str, Run]:
        return {run.id: run for run in (self._source.get_runs(run_ids) if run_ids else ()) if run is not None}


def _is_copy(run: Run) -> bool:
    """Return True if a run at the target is a copy that cannot start yet."""
    return is_held(run, ARRIVING_AT) or (run.status is Status.BLOCKED and run.waits > 0)
