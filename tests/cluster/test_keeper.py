"""What the sentinel does with the store goes on after everything that the store may do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.cluster.keeper import Keeper
from mainspring.errors import StoreUnavailable
from tests.cluster.kit import wait_until


def test_leases_are_renewed_though_the_store_was_away_when_the_cluster_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Mainspring(f"sqlite:///{tmp_path}/jobs.db", lease=1)
    pings: list[None] = []

    def ping() -> bool:
        pings.append(None)
        raise StoreUnavailable("the network was cut")

    monkeypatch.setattr(app.store, "ping", ping)
    lost: list[Any] = []
    worker: Any = SimpleNamespace(claims={"run-1": "token"}, killed=False, stop_runs=lost.extend)
    keeper = Keeper(app, lambda: [worker])
    keeper.start()
    try:
        wait_until(lambda: lost)  # the store does not know that run: the answer to a renewal
    finally:
        keeper.close()
        app.close()
    assert (lost[0], len(pings)) == (("run-1", "token"), 1)
