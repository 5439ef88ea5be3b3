"""Edges in the simulated store, in their simplest form; and their oracle, which keeps books of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

from msgspec.structs import replace

from mainspring.core.run import FINAL, Run, Status, bit_of


class EdgeMutant(StrEnum):
    """Ways to break what an edge promises."""

    RELEASE_EARLY = "the first predecessor releases"
    FORGET_REFUSAL = "any end releases"
    ADD_BLIND = "a predecessor that has ended is waited for"


class SimEdges:
    """Masks by predecessor and successor."""

    def __init__(self, runs: dict[str, Run], mutant: StrEnum | None) -> None:
        self._runs, self._mutant = runs, mutant
        self._masks: dict[str, dict[str, int]] = {}

    def judged(self, run: Run, now: int) -> Run:
        """Return a run as its predecessors let it be stored, and add the edges."""
        waits, refused = 0, None
        for after in run.after:
            self._masks.setdefault(after.id, {})[run.id] = after.on
            before = self._runs.get(after.id)
            if before is None:  # a mutant has lost it
                continue
            self._runs[after.id] = replace(before, followed=len(self._masks[after.id]))
            if before.status not in FINAL or self._mutant is EdgeMutant.ADD_BLIND:
                waits += 1
            elif not after.on & bit_of(before.status) and self._mutant is not EdgeMutant.FORGET_REFUSAL:
                refused = refused or after.id
        if refused is not None:
            return replace(run, status=Status.PENDING, waits=0, refused=refused, run_at=now)
        return replace(run, status=Status.BLOCKED if waits else Status.PENDING, waits=waits)

    def cut(self, run: Run, *, behind: bool) -> None:
        """Delete the edges to a run, and those from it."""
        for after in run.after:
            self._masks.get(after.id, {}).pop(run.id, None)
        if behind:
            self._masks.pop(run.id, None)

    def behind(self, run_id: str) -> Iterable[str]:
        """Return the runs that come after one."""
        return self._masks.get(run_id, {})

    def judge_ends(self, ended: dict[str, Status], now: int) -> list[str]:
        """Release or refuse the runs after those that ended; return whom this refuses."""
        refused: list[str] = []
        for run_id, status in ended.items():
            for each, mask in self._masks.get(run_id, {}).items():
                run = self._runs.get(each)
                if run is None or run.status in FINAL or run.status is Status.RUNNING:
                    continue
                if run.status is not Status.BLOCKED and run.refused is None:
                    continue
                if mask & bit_of(status) or self._mutant is EdgeMutant.FORGET_REFUSAL:
                    waits = 0 if self._mutant is EdgeMutant.RELEASE_EARLY else max(0, run.waits - 1)
                    free = not waits and run.status is Status.BLOCKED
                    run = replace(run, waits=waits, status=Status.PENDING if free else run.status)
                    self._runs[each] = replace(run, run_at=max(now, run.run_at)) if free else run
                elif run.refused is None:
                    self._runs[each] = replace(run, status=Status.PENDING, waits=0, refused=run_id, run_at=now)
                    refused.append(each)
        # Refused beats released in the same call.
        for run_id, status in ended.items():
            for each, mask in self._masks.get(run_id, {}).items():
                run = self._runs.get(each)
                bad = not mask & bit_of(status) and self._mutant is not EdgeMutant.FORGET_REFUSAL
                if bad and run is not None and run.status is Status.PENDING and run.refused is None:
                    self._runs[each] = replace(run, refused=run_id)
                    refused.append(each)
        return refused


class EdgeOracle:
    """Who may start: it hears of what was added and written, and knows nothing of the store's numbers."""

    def __init__(self, fault: Callable[[str], None]) -> None:
        self._fault = fault
        self._after: dict[str, dict[str, int]] = {}
        self._behind: dict[str, set[str]] = {}
        self._status: dict[str, Status] = {}
        self._satisfied: dict[str, set[str]] = {}
        self._spoilt: dict[str, set[str]] = {}
        self.started_behind = self.refused = 0

    def added(self, run: Run) -> None:
        """Hear of a new run."""
        self._status[run.id] = run.status
        if run.after:
            self._after[run.id] = {after.id: after.on for after in run.after}
            for after in run.after:
                self._behind.setdefault(after.id, set()).add(run.id)
            self._judge(run.id)

    def _judge(self, run_id: str) -> None:
        masks = self._after.get(run_id, {})
        over = {each: self._status[each] for each in masks if self._status[each] in FINAL}
        self._satisfied[run_id] = {each for each, status in over.items() if masks[each] & bit_of(status)}
        self._spoilt[run_id] = set(over) - self._satisfied[run_id]

    def written(self, outcomes: Iterable[tuple[Run | None, Run]]) -> None:
        """Hear what one call has written: each run before and after."""
        outcomes = list(outcomes)
        over = {run_id for run_id, status in self._status.items() if status in FINAL}
        self._status.update((run.id, run.status) for _, run in outcomes)
        for _, run in outcomes:
            for each in self._behind.get(run.id, ()) if run.status in FINAL else ():
                if run.id in self._satisfied[each] or each in over:
                    continue
                good = self._after[each][run.id] & bit_of(run.status)
                (self._satisfied if good else self._spoilt)[each].add(run.id)
        for before, run in outcomes:
            if run.status is Status.BLOCKED or (before is not None and before.status in FINAL):
                self._judge(run.id)
            elif run.status is Status.CANCELLED and before is not None and before.status is not Status.RUNNING:
                self._dropped(run)

    def _dropped(self, run: Run) -> None:
        if run.refused is not None:
            self.refused += 1
            if run.refused not in self._spoilt.get(run.id, ()):
                self._fault(f"{run.id} was dropped because of {run.refused}, which had not spoilt it")

    def started(self, run: Run) -> None:
        """Hear that a run is executed."""
        if run.refused is not None:
            self._fault(f"{run.id} was started though {run.refused} had refused it")
        missing = set(self._after.get(run.id, ())) - self._satisfied.get(run.id, set())
        if missing:
            self._fault(f"{run.id} was started before {', '.join(sorted(missing))} had ended as it should")
        self.started_behind += bool(run.after)
