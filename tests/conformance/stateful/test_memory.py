"""The machine itself: a memory store agrees with another one, and a store that forgets to compare is caught."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace

from mainspring.core.plan import Firing
from mainspring.core.run import Outcome
from mainspring.jobstores.base import Answers
from mainspring.jobstores.memory import MemoryJobStore
from tests.conformance.stateful.machine import StoreMachine, budget


class MemoryMachine(StoreMachine):
    make = staticmethod(lambda: MemoryJobStore(keep_runs=100_000))


TestMemory = MemoryMachine.TestCase
TestMemory.settings = budget(40)


class SettlesById(MemoryJobStore):
    """Takes every word about a run, whoever says it."""

    def settle(self, outcomes: Sequence[Outcome]) -> Answers[bool]:
        current = self.get_runs([outcome.run.id for outcome in outcomes])
        return super().settle(
            [
                outcome if stored is None else replace(outcome, run=replace(outcome.run, token=stored.token))
                for outcome, stored in zip(outcomes, current, strict=True)
            ]
        )


class FiresWithoutComparing(MemoryJobStore):
    """Fires whatever version of a job it is shown."""

    def fire(self, firings: Sequence[Firing], lease: float) -> Answers[tuple[str, ...] | None]:
        jobs = {step.job_id: self.lookup_job(step.job_id) for step in firings}
        versions = {job_id: 0 if job is None else job.version for job_id, job in jobs.items()}
        return super().fire([replace(step, version=versions[step.job_id]) for step in firings], lease)


@pytest.mark.parametrize("mutant", [SettlesById, FiresWithoutComparing])
def test_a_store_that_does_not_compare_is_caught(mutant: type[MemoryJobStore]) -> None:
    class Machine(StoreMachine):
        make = staticmethod(lambda: mutant(keep_runs=100_000))

    # Without shrinking: that it is found is enough.
    quick = settings(max_examples=400, stateful_step_count=50, phases=[Phase.generate], derandomize=True, database=None)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Machine, settings=quick)
