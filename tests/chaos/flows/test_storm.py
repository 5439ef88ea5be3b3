"""A slice of the storm over flows and limits, by a fixed seed, on real stores. `python3 run.py chaos` does the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.flows.storm import rage

KILLS = 8


@pytest.mark.parametrize("store", ["sqlite", "postgresql", "redis"])
@pytest.mark.timeout(400)
def test_flows_and_limits_hold_through_kills_cancels_and_retries(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/storm.db" if store == "sqlite" else request.getfixturevalue(f"{store}_server").url

    code, said = rage(url, tmp_path, kills=KILLS, seed=7, workers=3, enqueuers=1)

    assert code == 0, said
