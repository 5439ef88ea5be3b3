"""A slice of the chaos run: real processes on two stores, by a fixed seed. `python3 run.py chaos` does the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.__main__ import torment
from tests.chaos.torment import Plan
from tests.conftest import STRICT
from tests.servers import MissingServer


@pytest.mark.parametrize("store", ["sqlite", "redis"])
@pytest.mark.timeout(300)
def test_torment_loses_nothing_and_does_nothing_twice(store: str, tmp_path: Path) -> None:
    plan = Plan(
        store, runs=600, kills=4, freezes=1, restarts=1, tampers=6, seed=3, lease=3.0, clusters=(2,),
        cuts=int(store != "sqlite"), clocks=True,
    )  # fmt: skip

    try:
        findings, head = torment(plan, tmp_path, busy=True)
    except MissingServer as missing:
        if STRICT:
            raise
        pytest.skip(str(missing))

    assert [finding.line() for finding in findings if finding.wrong] == [], head
