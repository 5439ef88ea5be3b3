"""A slice of the storm over flows and limits, by a fixed seed, on real stores. `python3 run.py chaos` does the rest."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mainspring.errors import StoreLocked
from mainspring.jobstores.base import JobStore
from mainspring.jobstores.memory import MemoryJobStore
from tests.chaos.flows.actors import Log, Stop
from tests.chaos.flows.storm import persist, rage

KILLS = 8


@pytest.mark.parametrize("store", ["sqlite", "postgresql", "redis"])
@pytest.mark.timeout(400)
def test_flows_and_limits_hold_through_kills_cancels_and_retries(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/storm.db" if store == "sqlite" else request.getfixturevalue(f"{store}_server").url

    code, said = rage(url, tmp_path, kills=KILLS, seed=7, workers=3, enqueuers=1)

    assert code == 0, said


def test_whoever_meets_a_lock_begins_anew_with_its_next_numbers(tmp_path: Path) -> None:
    drawn: list[float] = []

    def act(store: JobStore, chance: random.Random, log: Log, stop: Stop) -> None:
        drawn.append(chance.random())
        if len(drawn) < 3:
            raise StoreLocked("another program has it")

    persist(act, MemoryJobStore(), random.Random(1), Log(tmp_path), lambda: False)
    assert len(set(drawn)) == 3
