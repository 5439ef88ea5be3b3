"""What the sentinel tells whoever started it, and where it finds the app."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.app.loading.locating import path_of
from mainspring.cluster import sentinel as module
from mainspring.cluster.sentinel import Sentinel
from mainspring.cluster.settings import ClusterStat, Settings


def test_whoever_started_it_is_told_of_states_and_of_what_it_asks_for_but_not_of_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[ClusterStat] = []
    with closing(Mainspring(f"sqlite:///{tmp_path}/jobs.db")) as app:
        monkeypatch.setattr(module, "find_app", lambda path, include: app)
        sentinel = Sentinel(Settings(app="jobs:app", processes=1), told.append)
        sentinel._bell.close()
        sentinel._ringer.close()
        worker: Any = SimpleNamespace(pid=1, killed=False, draining=None, ready=True, since=0.0, claims={}, runs=0)
        sentinel._slots[0].worker = worker
        for _ in range(1000):
            worker.runs += 1
            sentinel._show()
        assert [stat.state for stat in told] == ["starting"]
        sentinel._asked = True
        sentinel._show()
        sentinel._show()
        assert [stat.runs for stat in told] == [1, 1000]
        sentinel.state = "running"
        sentinel._show()
        assert [stat.state for stat in told] == ["starting", "starting", "running"]


def test_an_app_is_imported_from_its_module_though_the_main_program_has_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Mainspring("memory://")
    shop = ModuleType("shop_of_this_test")
    shop.jobs = app  # type: ignore[attr-defined]
    monkeypatch.setattr(sys.modules["__main__"], "alias_of_this_test", app, raising=False)
    assert path_of(app) == "__main__:alias_of_this_test"
    monkeypatch.setitem(sys.modules, "shop_of_this_test", shop)
    assert path_of(app) == "shop_of_this_test:jobs"
