"""Gates in the simulated store, in their simplest form; and their oracle, which counts slots in books of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import StrEnum

from msgspec.structs import replace

from mainspring.core.run import FINAL, Run, Status
from mainspring.core.waiting.gates import PARKED, STARTS, GateState, Limit, judge


class GateMutant(StrEnum):
    """Ways to break what a gate promises."""

    COUNT_NOBODY = "slots are not counted"
    LEAVE_PARKED = "nobody comes back when a slot is free"


class SimGates:
    """The states of gates; who runs and who is parked is read from the runs."""

    def __init__(self, runs: dict[str, Run], mutant: StrEnum | None) -> None:
        self._runs, self._mutant = runs, mutant
        self._states: dict[str, GateState] = {}
        self._freed: list[str] = []

    def put_off(self, run: Run, now: int) -> Run | None:
        """Return a run as it waits on, parked or with a later time; None if it may start."""
        if run.gate is None or run.refused is not None:
            return None
        here = [each for each in self._runs.values() if each.gate == run.gate and each.refused is None]
        running = sum(each.status is Status.RUNNING for each in here)
        if self._mutant is GateMutant.COUNT_NOBODY:
            running = 0
        state = self._states.setdefault(run.gate, GateState())
        verdict = judge(Limit.from_text(run.gate_spec or "//1"), state, running, now)
        if verdict == STARTS:
            return None
        return replace(run, status=Status.BLOCKED) if verdict == PARKED else replace(run, run_at=verdict)

    def note(self, before: Run | None, run: Run) -> None:
        """Note that a run may have left its gate: it has stopped running, or ended without having run."""
        if before is None or before.gate is None or before.refused is not None:
            return
        stopped = before.status is Status.RUNNING and run.status is not Status.RUNNING
        gone = run.status in FINAL and before.status not in FINAL
        if (stopped or gone) and self._mutant is not GateMutant.LEAVE_PARKED:
            self._freed.append(before.gate)

    def let_in(self, now: int) -> None:
        """Let the oldest parked run of each queue come back for each run that has left its gate."""
        while self._freed:
            gate = self._freed.pop()
            parked = [run for run in self._runs.values() if run.gate == gate and is_parked(run)]
            first: dict[str, Run] = {}
            for run in sorted(parked, key=lambda run: (run.created_at, run.id)):
                first.setdefault(run.queue, run)
            for run in first.values():
                self._runs[run.id] = replace(run, status=Status.PENDING, run_at=now)


def is_parked(run: Run) -> bool:
    """Return True if a run waits for nothing but a slot."""
    return run.status is Status.BLOCKED and not run.waits and run.gate is not None


class GateOracle:
    """How many run: it hears of what was claimed and written, and knows nothing of the store's records."""

    def __init__(self, fault: Callable[[str], None]) -> None:
        self._fault = fault
        self._running: dict[str, str] = {}
        self.gated = 0
        self.parked = 0

    def claimed(self, run: Run) -> None:
        """Hear that a run has started."""
        if run.gate is None or run.refused is not None:
            return
        self._running[run.id] = run.gate
        self.gated += 1
        number, most = Counter(self._running.values())[run.gate], Limit.from_text(run.gate_spec or "//1").at_once
        if most is not None and number > most:
            self._fault(f"{run.id} was started as number {number} of {run.gate}, which has {most} slots")

    def written(self, run: Run) -> None:
        """Hear what was written of a run."""
        if run.status is not Status.RUNNING:
            self._running.pop(run.id, None)
