"""The real ticks in a simulated world: no promise is broken, and every known way to break one is noticed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from enum import StrEnum

import pytest

from tests.simulation.edges import EdgeMutant
from tests.simulation.gates import GateMutant
from tests.simulation.scenario import simulate
from tests.simulation.store import Mutant

SEEDS = 120
MOST = 1000
"""The rarest mutant needs some fifty seeds."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_no_promise_is_broken_through_kills_freezes_and_lost_replies(first: int) -> None:
    histories = {seed: simulate(seed) for seed in range(first, first + 20)}
    assert {seed: history.faults for seed, history in histories.items() if history.faults} == {}
    # The trouble was real: otherwise this would prove nothing.
    assert sum(history.kills for history in histories.values()) >= 20
    assert sum(history.freezes for history in histories.values()) >= 20
    assert sum(history.cancels for history in histories.values()) >= 20
    assert sum(history.repeats for history in histories.values()) >= 100
    assert sum(history.behind for history in histories.values()) >= 100
    assert sum(history.refused for history in histories.values()) >= 20
    assert sum(history.gated for history in histories.values()) >= 100
    assert sum(history.parked for history in histories.values()) >= 20


@pytest.mark.parametrize("seed", [3, 4])
def test_a_seed_gives_the_same_history_again(seed: int) -> None:
    assert simulate(seed) == simulate(seed)


def test_two_seeds_give_different_histories() -> None:
    assert simulate(1).digest != simulate(3).digest


@pytest.mark.parametrize("mutant", [*Mutant, *EdgeMutant, *GateMutant])
def test_a_store_that_breaks_a_promise_is_caught(mutant: StrEnum) -> None:
    assert any(simulate(seed, mutant).faults for seed in range(MOST))
